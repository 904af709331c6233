"""Unknown keys of a config, found without importing torch or what the config names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from runnerkit.config.findings import Finding, without_errors
from runnerkit.config.known_keys import (
    BELONGS,
    DEFAULT_READERS,
    FOREIGN,
    KEYS,
    MMCV_TOOLS,
    OF_TORCH,
    OPEN,
    OWN_CONSTRUCTOR,
    PARTS,
    REQUIRED,
    SAME,
    SCHEDULES,
    SPLITS,
    TOP,
)
from runnerkit.config.merge import DELETE_KEY
from runnerkit.config.origin import OPTIONS, origin_of, place_of
from runnerkit.config.parse import BASE_REFERENCE
from runnerkit.utils.suggest import did_you_mean, near_miss, nearest

#: Names through which a Python config can read any of its variables.
_READS_ALL = {'globals', 'locals', 'vars', 'eval', 'exec'}


#: How many unknown top-level keys are looked at, each of them for a misspelling and among all values.
MOST_UNREAD = 200


def unread_keys(cfg: Any) -> list[Finding]:
    """Unknown keys: errors in sections whose reader is known, and warnings elsewhere.

    A misspelt key that ``--cfg-options`` adds is an error everywhere, and so is one in place of a section that a run
    needs. The arguments of registered classes are not checked here: their constructors refuse what they do not know.

    Args:
        cfg: a `Config`, or a dict like one.
    """
    root = getattr(cfg, '_cfg_dict', cfg)
    if not isinstance(root, Mapping):
        return []
    findings = [*_in_top(root, getattr(cfg, 'text', '')), *_in_data(root.get('data'), root.get('workflow'))]
    for path, section, reader in _sections(root):
        findings += _in_section(path, section, reader, root)
    for key in TOP:
        findings += _near_options(root.get(key), key)
    by_key: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        by_key.setdefault((finding.key, finding.where), finding)
    return list(by_key.values())


def resolve_synonyms(cfg: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``options`` by dotted key, with `SAME` keys under the name that ``cfg`` already uses.

    ``data.samples_per_gpu=32`` then changes the ``batch_size`` of a config that has one.
    """
    other = {**dict(SAME), **{usual: mmcv for mmcv, usual in SAME}}
    renamed = {}
    for path, value in options.items():
        *parents, key = path.split('.')
        section: Any = cfg
        for parent in parents:
            section = section.get(parent) if isinstance(section, Mapping) else None
        synonym = '.'.join((*parents, other.get(key, key)))
        is_used = isinstance(section, Mapping) and key not in section and other.get(key) in section
        renamed[synonym if is_used and synonym not in options else path] = value
    return renamed


def refuse_unread_keys(cfg: Any, sections: Collection[str] | None = None) -> None:
    """Refuse a config for which `unread_keys` finds errors.

    Args:
        cfg: a `Config`, or a dict like one.
        sections: the top-level keys that are going to be read; None for all.

    Raises:
        PreflightError: there are errors in one of these sections, or in the name of a top-level key.
    """
    without_errors(
        finding
        for finding in unread_keys(cfg)
        if sections is None or finding.key.partition('.')[0] in (*sections, finding.key)
    )


def keys_of_other_tools(cfg: Any) -> list[str]:
    """The top-level keys that only the training tools of MMCV's downstream projects read."""
    return [key for key in MMCV_TOOLS if key in cfg]


# --- sections --------------------------------------------------------------------------------------------------------


def _sections(root: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """The dotted key of each section other than ``data`` whose reader is known, the section, and the reader."""
    for key in TOP:
        section = root.get(key)
        if not isinstance(section, Mapping):
            continue
        reader = _reader(key, section)
        if reader is not None:
            yield key, section, reader
        if key == 'optimizer':
            yield from _multipliers(section)
        for part in PARTS.get(reader or '', ()):
            if isinstance(section.get(part), Mapping):
                yield f'{key}.{part}', section[part], part


def _multipliers(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """The ``paramwise_cfg`` of one optimizer, or of several."""
    parts = {'optimizer': config}
    if 'type' not in config:
        parts = {f'optimizer.{name}': part for name, part in config.items() if isinstance(part, Mapping)}
    for path, part in parts.items():
        paramwise = part.get('paramwise_cfg')
        if isinstance(paramwise, Mapping) and part.get('constructor', OWN_CONSTRUCTOR) == OWN_CONSTRUCTOR:
            path = f'{path}.paramwise_cfg'
            yield path, paramwise, 'paramwise_cfg'
            keys = paramwise.get('custom_keys')
            for name, factors in keys.items() if isinstance(keys, Mapping) else ():
                if isinstance(factors, Mapping):
                    yield f'{path}.custom_keys.{name}', factors, 'custom_keys'


def _in_section(path: str, section: Mapping[str, Any], reader: str, root: Mapping[str, Any]) -> Iterator[Finding]:
    """What a section other than ``data`` says that its reader does not know."""
    known = KEYS[reader]
    others: bool = reader in OPEN or reader in OF_TORCH
    if reader == 'CheckpointHook':  # it hands them on to the runner
        others = _reader('runner', root.get('runner')) is None
    own = {'type', 'policy'} if path in SCHEDULES else {'type'} if reader[0].isupper() else set()
    for key in section:
        if key in known or key in own:
            continue
        if not others or near_miss(str(key), known):
            sure = reader not in OPEN or _is_new_option(section, key)
            yield _unread('error' if sure else 'warning', section, path, key, known, reader, own)


def _reader(key: str, section: Any) -> str | None:
    """The name in `KEYS` of what reads a section; None if that is not known before classes are imported."""
    if not isinstance(section, Mapping):
        return None
    if key in SCHEDULES:
        policy = section.get('policy')
        policy = policy.title() if isinstance(policy, str) and policy == policy.lower() else policy
        named = section.get('type', f'{policy}{SCHEDULES[key]}')
    elif key in DEFAULT_READERS:
        named = section.get('type', DEFAULT_READERS[key])
    else:
        named = key if key != 'data' else None
    return named if isinstance(named, str) and named in KEYS else None


def is_ours(cfg: Any, key: str) -> bool:
    """Whether one of runnerkit's own classes reads the section ``key``, so that what its keys mean is known."""
    return _reader(key, cfg.get(key)) is not None


def _in_data(data: Any, workflow: Any = None) -> Iterator[Finding]:
    """Unknown keys of ``data`` and its loaders. A split of any name can be tested (``test --split``), and named by
    an entry of the workflow."""
    if not isinstance(data, Mapping):
        return
    entries = workflow if isinstance(workflow, list | tuple) else ()
    named = [entry[0] for entry in entries if isinstance(entry, list | tuple) and entry and isinstance(entry[0], str)]
    splits = tuple(dict.fromkeys((*SPLITS, *(mode for mode in named if mode in data))))
    splits = (*splits, *(f'{split}_dataloader' for split in splits))
    known = (*KEYS['data'], *splits)
    yield from _said_twice(data, 'data')
    for key, value in data.items():
        if isinstance(value, Mapping) and str(key).endswith('_dataloader'):
            yield from _said_twice(value, f'data.{key}')
            for each in value:
                if each not in KEYS['dataloader']:
                    yield _unread('error', value, f'data.{key}', each, KEYS['dataloader'], 'the loader')
        if key not in known and (near_miss(str(key), known) or not _may_be_a_split(str(key), value, data)):
            yield _unread('error', data, 'data', key, known, 'data')


def _may_be_a_split(key: str, value: Any, data: Mapping[str, Any]) -> bool:
    if key.endswith('_dataloader'):
        return key.removesuffix('_dataloader') in data
    if isinstance(value, Mapping):
        by_name = bool(value) and all(isinstance(part, Mapping) and 'type' in part for part in value.values())
        return 'type' in value or by_name
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(part, Mapping) and 'type' in part for part in value)
    return hasattr(value, '__getitem__') and not isinstance(value, str)


def _said_twice(section: Mapping[str, Any], path: str) -> Iterator[Finding]:
    for mmcv, usual in SAME:
        if mmcv in section and usual in section:
            what = f'duplicates {path}.{mmcv} ({section[usual]!r} and {section[mmcv]!r})'
            yield Finding('error', f'{path}.{usual}', place_of(section, usual), what, 'Keep one of the two.')


def _unread(
    level: Any,
    section: Mapping[str, Any],
    path: str,
    key: str,
    known: Sequence[str],
    reader: str,
    own: Collection[str] = (),
) -> Finding:
    belongs = BELONGS.get(key, '') if path.partition('.')[0] in ('data', path) else ''
    if near_miss(str(key), [DELETE_KEY]):
        way_out = f'Did you mean {DELETE_KEY!r}?'
    elif nearest(str(key), (*known, *own)):
        way_out = _question(str(key), (*known, *sorted(own)))
    elif belongs and belongs != f'{path}.{key}':
        way_out = f'Write {belongs}.'
    elif known:
        way_out = f'It takes {", ".join(known)}.'
    else:
        way_out = f'{reader} takes no arguments.'
    return Finding(
        level,
        f'{path}.{key}',
        place_of(section, key),
        f'unknown key of {reader if reader[0].isupper() else path}',
        way_out,
    )


def _question(key: str, known: Sequence[str]) -> str:
    return did_you_mean(key, known).replace('did', 'Did', 1)


# --- the top level ---------------------------------------------------------------------------------------------------


def _in_top(root: Mapping[str, Any], text: str) -> Iterator[Finding]:
    """Top-level keys that neither a run nor a file of the config reads."""
    if root.get('pipeline') and not any(key in root for key in REQUIRED):
        what = 'this config lists the steps of a search; it is not a single training'
        yield Finding('error', 'pipeline', place_of(root, 'pipeline'), what, 'Run it with `runnerkit search CONFIG`.')
        return
    is_read = _reads_of_files(root, text)
    rest = [key for key in root if isinstance(key, str) and key not in TOP and key not in MMCV_TOOLS]
    foreign: set[str] = set()
    for system, names in FOREIGN.items():
        found = [key for key in rest if key in names]
        if len(found) > 1:
            foreign.update(found)
            what = f'runnerkit ignores the keys of {system}: {", ".join(found)}'
            yield Finding('warning', found[0], place_of(root, found[0]), what, f'A run reads {", ".join(REQUIRED)} …')
    unread = [key for key in rest if key not in foreign and not key.startswith('_') and not is_read(key)]
    for key in unread[:MOST_UNREAD]:
        yield from _unknown(root, key)
    if more := unread[MOST_UNREAD:]:
        what = f'this config has {len(unread)} unknown top-level keys; the last {len(more)} are not checked'
        yield Finding('warning', more[0], place_of(root, more[0]), what, 'Put your own values into one section.')


def _unknown(root: Mapping[str, Any], key: str) -> Iterator[Finding]:
    """What to say about a top-level key that no file reads."""
    origin, where = origin_of(root), place_of(root, key)
    by_option = _is_option(root, key)
    meant = near_miss(key, TOP)
    if meant is not None:
        lacking = meant not in root and (meant in REQUIRED or _fits(root[key], meant))
        level: Any = 'error' if by_option or lacking else 'warning'
        what = f'unknown {"section" if isinstance(root[key], Mapping) else "key"}'
        yield Finding(level, key, where, what, f'Did you mean {meant!r}?')
    elif by_option:
        same = [path for path, _ in _values(root) if path.rpartition('.')[2] == key][:3]
        way_out = BELONGS.get(key) or ', '.join(same)
        what = 'has no effect: --cfg-options are applied after the config files are executed'
        if _is_new_option(root, key):
            what = 'unknown key: neither a run nor a file of the config reads it'
        yield Finding('warning', key, where, what, f'Set {way_out}.' if way_out else 'Set the keys that depend on it.')
    elif origin is not None and 'training' not in root and not _is_used(root, key):  # an Experiment reads any key
        way_out = f'Write {BELONGS[key]}.' if key in BELONGS else 'Remove it, or begin its name with an underscore.'
        yield Finding('warning', key, where, 'unused: neither a run nor a file of this config reads it', way_out)


def _fits(value: Any, section: str) -> bool:
    """Whether a value has the form of a run's ``section``, so that the section is what was meant."""
    if section == 'custom_hooks':
        return isinstance(value, list) and bool(value) and all(isinstance(x, Mapping) and 'type' in x for x in value)
    reader = _reader(section, value)
    return bool(value) and reader is not None and set(value) <= {*KEYS[reader], 'type', 'policy'}


def _reads_of_files(root: Mapping[str, Any], text: str) -> Callable[[str], bool]:
    """Whether a key is read by the file that sets it, or by one that has it in its ``_base_``."""
    origin = origin_of(root)
    referenced = {reference.partition('.')[0] for reference in BASE_REFERENCE.findall(text)}

    def is_read(key: str) -> bool:
        if key in referenced and not _is_option(root, key):
            return True
        place = origin.place_of(key) if origin else None
        if place is None or place.source is None:
            return False
        return key in place.source.names_read or bool(place.source.names_read & _READS_ALL)

    return is_read


def _is_used(root: Mapping[str, Any], key: str) -> bool:
    """Whether the value is found again in what a run reads, so that the key is one from which that was made.

    A config that was written with its variables filled in, as into a work dir, has many such keys.
    """
    wanted = root[key]
    if isinstance(wanted, Mapping):
        return any(isinstance(value, Mapping) and wanted.items() <= value.items() for _, value in _values(root))
    if isinstance(wanted, str) and wanted:
        return any(isinstance(value, str) and wanted in value for _, value in _values(root))
    if isinstance(wanted, list | tuple) and wanted:
        return any(isinstance(value, list | tuple) and list(wanted) == list(value) for _, value in _values(root))
    return any(path.rpartition('.')[2] == key and value == wanted for path, value in _values(root))


def _values(root: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every value in the sections that a run reads, with its dotted key."""
    pending = [(key, root[key]) for key in TOP if key in root]
    while pending:
        path, value = pending.pop()
        yield path, value
        if isinstance(value, Mapping):
            pending += [(f'{path}.{key}', item) for key, item in value.items()]
        elif isinstance(value, list | tuple):
            pending += [(f'{path}.{index}', item) for index, item in enumerate(value)]


# --- --cfg-options ---------------------------------------------------------------------------------------------------


def _near_options(value: Any, path: str) -> Iterator[Finding]:
    """Keys that ``--cfg-options`` adds to a dict that has a similar one.

    A dict with a ``type`` gets a warning only: its class may have both.
    """
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _near_options(item, f'{path}.{index}')
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _near_options(item, f'{path}.{key}')
            if not _is_new_option(value, key):
                continue
            others = [each for each in value if isinstance(each, str) and not _is_new_option(value, each)]
            meant = near_miss(str(key), others)
            if meant is not None:
                level: Any = 'warning' if 'type' in value else 'error'
                what = f'--cfg-options adds a new key, although there is {path}.{meant}'
                yield Finding(level, f'{path}.{key}', place_of(value, key), what, f'Did you mean {path}.{meant}?')


# --- where keys were written -----------------------------------------------------------------------------------------


def _is_option(section: Mapping[str, Any], key: Any) -> bool:
    """Whether ``--cfg-options`` set the key."""
    origin = origin_of(section)
    return origin is not None and key in origin.keys and origin.keys[key].file == OPTIONS


def _is_new_option(section: Mapping[str, Any], key: Any) -> bool:
    """Whether ``--cfg-options`` added the key to a dict that did not have it."""
    origin = origin_of(section)
    return _is_option(section, key) and origin is not None and key in origin.added
