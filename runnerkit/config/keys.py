"""What is wrong with the keys and the values of a config, found without importing torch or what the config names.

`known_keys` has the keys of each reader of a section with their types, and `values` what follows from a type.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain
from math import isfinite
from numbers import Real
from operator import getitem
from typing import Any

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
    SECTIONS,
    SPLITS,
    TOP,
)
from runnerkit.config.merge import DELETE_KEY
from runnerkit.config.origin import OPTIONS, Finding, dotted, origin_of, place_of, without_errors, written_at
from runnerkit.config.parse import BASE_REFERENCE
from runnerkit.config.pretty import OBJECT, WAY_OUT, is_mark, why_nameless
from runnerkit.config.values import (
    BOOL,
    CONTAINERS,
    EXPONENT,
    KINDS,
    MAY_BE_INFINITE,
    NUMBER,
    ROOTS,
    ValueKind,
    kind_at,
    meant_by,
    right_value,
)
from runnerkit.utils.env import acts_as_mmcv
from runnerkit.utils.logging import printable
from runnerkit.utils.suggest import did_you_mean, near_miss, nearest

Path = tuple[Any, ...]

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
    found: dict[tuple[str, str], Finding] = {}
    sections = ((path, value) for path, value in _values_of_sections(root) if isinstance(value, Mapping))
    for finding in chain(_in_top(root, getattr(cfg, 'text', '')), *(_in_section(*each, root) for each in sections)):
        found.setdefault((finding.key, finding.where), finding)
    return list(found.values())


def wrong_values(cfg: Any) -> Iterator[Finding]:
    """Every value of a wrong type or that is not finite: an error where the key is known (`KINDS`), else a warning.

    A function without a name, which a work dir cannot keep, gets a warning.
    """
    root = getattr(cfg, '_cfg_dict', cfg)
    for path, value in _walk(root):
        for level, *said in _wrong(root, path, value):
            yield Finding(level, dotted(path), written_at(cfg, path), *said)


def resolve_synonyms(cfg: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``options`` by dotted key, with `SAME` keys under the name that ``cfg`` already uses.

    ``data.samples_per_gpu=32`` then changes the ``batch_size`` of a config that has one.
    """
    groups = [(mmcv, *usual) for mmcv, usual in SAME.items()]
    renamed = {}
    for path, value in options.items():
        *parents, key = path.split('.')
        section: Any = cfg
        for parent in parents:
            section = section.get(parent) if isinstance(section, Mapping) else None
        keys: Any = section if isinstance(section, Mapping) and key not in section else ()
        used = next((each for group in groups if key in group for each in group if each in keys), key)
        synonym = '.'.join((*parents, used))
        renamed[path if synonym in options else synonym] = value
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


def _walk(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value in ``node`` with its keys and indices, the outer ones first; of lists, not the finite numbers."""
    is_list = type(node) in (list, tuple)
    for key, value in enumerate(node) if is_list else node.items() if isinstance(node, Mapping) else ():
        is_number = type(value) is int or (type(value) is float and isfinite(value))
        if not (is_list and is_number):  # there may be many
            yield (*path, key), value
            if isinstance(value, Mapping | list | tuple):
                yield from _walk(value, (*path, key))


def _in_section(path: Path, section: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[Finding]:
    """Unknown keys of any dict of a config: of a section whose reader is known, or new next to a similar one."""
    name = '.'.join(map(str, path))
    reader = _reader_at(path, root)
    known, others = KEYS[reader] if reader else (), reader in OPEN or reader in OF_TORCH
    if reader == 'CheckpointHook':  # it hands them on to the runner
        others = _reader('runner', root.get('runner')) is None
    elif reader == 'data':  # a split of any name can be tested (``test --split``), and be in the workflow
        workflow = root.get('workflow')
        entries = workflow if isinstance(workflow, list | tuple) else ()
        modes = [entry[0] for entry in entries if isinstance(entry, list | tuple) and entry]
        splits = dict.fromkeys((*SPLITS, *(mode for mode in modes if isinstance(mode, str) and mode in section)))
        known = (*known, *splits, *(f'{split}_dataloader' for split in splits))
    for mmcv, usual in SAME.items() if reader in ('data', 'dataloader') else ():
        first, *again = [each for each in (mmcv, *usual) if each in section] or ['']
        for other in again:
            what = f'duplicates {name}.{first} ({section[other]!r} and {section[first]!r})'
            yield Finding('error', f'{name}.{other}', place_of(section, other), what, 'Keep one of the two.')
    own = {'type', 'policy'} if name in SCHEDULES else {'type'} if reader and reader[0].isupper() else set()
    for key, value in section.items() if reader else ():
        may_be_read = others or (reader == 'data' and _may_be_a_split(str(key), value, section))
        if key not in known and key not in own and (not may_be_read or near_miss(str(key), known)):
            sure = reader not in OPEN or _is_new_option(section, key)
            yield _unread('error' if sure else 'warning', section, name, key, known, str(reader), own)
    added = [key for key in section if _is_new_option(section, key)]
    for key in added:
        meant = near_miss(str(key), [each for each in section if isinstance(each, str) and each not in added])
        if meant is not None:  # a class may have both
            level: Any = 'warning' if 'type' in section else 'error'
            what = f'--cfg-options adds a new key, although there is {name}.{meant}'
            yield Finding(level, f'{name}.{key}', place_of(section, key), what, f'Did you mean {name}.{meant}?')


def _reader_at(path: Path, root: Mapping[str, Any]) -> str | None:
    """The name in `KEYS` of what reads the dict at ``path``; None if that is not known before classes are imported."""
    match path:
        case ('data', str(loader)) if loader.endswith('_dataloader'):
            return 'dataloader'
        case (key,):
            return _reader(key, root[key])
        case ('optimizer', *names, 'paramwise_cfg') if len(names) == ('type' not in root['optimizer']):
            optimizer = reduce(getitem, names, root['optimizer'])
            return 'paramwise_cfg' if optimizer.get('constructor', OWN_CONSTRUCTOR) == OWN_CONSTRUCTOR else None
        case ('optimizer', *names, 'paramwise_cfg', 'custom_keys', _):
            return _reader_at(('optimizer', *names, 'paramwise_cfg'), root) and 'custom_keys'
        case (key, part) if part in PARTS.get(_reader(key, root[key]) or '', ()):
            return str(part)
    return None


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
        named = key
    return named if isinstance(named, str) and named in KEYS else None


def has_known_reader(cfg: Any, key: str) -> bool:
    """Whether one of runnerkit's own classes reads the section ``key``, so that what its keys mean is known."""
    return _reader(key, cfg.get(key)) is not None


def _may_be_a_split(key: str, value: Any, data: Mapping[str, Any]) -> bool:
    if key.endswith('_dataloader'):
        return key.removesuffix('_dataloader') in data
    if isinstance(value, Mapping | list | tuple):
        parts = value.values() if isinstance(value, Mapping) else value
        each_has = bool(parts) and all(isinstance(part, Mapping) and 'type' in part for part in parts)
        return each_has or (isinstance(value, Mapping) and 'type' in value)
    return hasattr(value, '__getitem__') and not isinstance(value, str)


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
        way_out = did_you_mean(str(key), (*known, *sorted(own))).replace('did', 'Did', 1)
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


# --- the top level ---------------------------------------------------------------------------------------------------


def _in_top(root: Mapping[str, Any], text: str) -> Iterator[Finding]:
    """Top-level keys that neither a run nor a file of the config reads."""
    if root.get('pipeline') and not any(key in root for key in REQUIRED):
        what = 'this config lists the steps of a search; it is not a single training'
        yield Finding('error', 'pipeline', place_of(root, 'pipeline'), what, 'Run it with `runnerkit search CONFIG`.')
        return
    referenced = {reference.partition('.')[0] for reference in BASE_REFERENCE.findall(text)}
    rest = [key for key in root if isinstance(key, str) and key not in TOP and key not in MMCV_TOOLS]
    foreign: set[str] = set()
    for system, names in FOREIGN.items():
        found = [key for key in rest if key in names]
        if len(found) > 1:
            foreign.update(found)
            what = f'runnerkit ignores the keys of {system}: {", ".join(found)}'
            yield Finding('warning', found[0], place_of(root, found[0]), what, f'A run reads {", ".join(REQUIRED)} …')
    unread = [
        key
        for key in rest
        if key not in foreign and not key.startswith('_') and not _is_read_in_file(root, key, referenced)
    ]
    for key in unread[:MOST_UNREAD]:
        yield from _unknown(root, key)
    if more := unread[MOST_UNREAD:]:
        what = f'this config has {len(unread)} unknown top-level keys; the last {len(more)} are not checked'
        yield Finding('warning', more[0], place_of(root, more[0]), what, 'Put your own values into one section.')


def _unknown(root: Mapping[str, Any], key: str) -> Iterator[Finding]:
    """What to say about a top-level key that no file reads."""
    origin, where = origin_of(root), place_of(root, key)
    by_option = _is_option(root, key)
    section = near_miss(key, SECTIONS, allowed=2) if origin is not None else None
    is_section = section is not None and _can_only_be(root, key, section)
    meant = section if is_section else near_miss(key, TOP)
    if meant is not None:
        lacking = meant not in root and (meant in REQUIRED or _fits(root[key], meant))
        is_wrong = by_option or lacking or (is_section and not acts_as_mmcv())
        level: Any = 'error' if is_wrong else 'warning'
        what = f'unknown {"section" if isinstance(root[key], Mapping) else "key"}'
        yield Finding(level, key, where, what, f'Did you mean {meant!r}?')
    elif by_option:
        same = ['.'.join(map(str, path)) for path, _ in _values_of_sections(root) if path[-1] == key][:3]
        way_out = BELONGS.get(key) or ', '.join(same)
        what = 'has no effect: --cfg-options are applied after the config files are executed'
        if _is_new_option(root, key):
            what = 'unknown key: neither a run nor a file of the config reads it'
        yield Finding('warning', key, where, what, f'Set {way_out}.' if way_out else 'Set the keys that depend on it.')
    elif origin is not None and 'training' not in root and not _is_used(root, key):  # an Experiment reads any key
        way_out = f'Write {BELONGS[key]}.' if key in BELONGS else 'Remove it, or begin its name with an underscore.'
        yield Finding('warning', key, where, 'unused: neither a run nor a file of this config reads it', way_out)


def _can_only_be(root: Mapping[str, Any], key: str, section: str) -> bool:
    """Whether an unread key is nothing but ``section`` misspelt: it looks like one, and no code may read it.

    Stages of the user's own and an Experiment read any key, and every file of the config may read those of the others.
    A config that was written with its variables filled in has a part of the section under the key.
    """
    value, origin = root[key], origin_of(root)
    may_be_read = root.get('training') is not None or root.get('flow')
    if may_be_read or not (value is None or isinstance(value, Mapping | list | tuple)):
        return False
    sources = [place.source for place in (*origin.places, *origin.keys.values())] if origin else []
    if any({key, *_READS_ALL} & source.names_read for source in sources if source is not None):
        return False
    parts = value.values() if isinstance(value, Mapping) else value or ()
    held = [part for part in (value, *parts) if isinstance(part, Mapping | list | tuple)]
    return not any(part == each for _, each in _walk({section: root.get(section)}) for part in held)


def _fits(value: Any, section: str) -> bool:
    """Whether a value has the form of a run's ``section``, so that the section is what was meant."""
    if section == 'custom_hooks':
        return isinstance(value, list) and bool(value) and all(isinstance(x, Mapping) and 'type' in x for x in value)
    reader = _reader(section, value)
    return bool(value) and reader is not None and set(value) <= {*KEYS[reader], 'type', 'policy'}


def _is_read_in_file(root: Mapping[str, Any], key: str, referenced: Collection[str]) -> bool:
    """Whether a key is read by the file that sets it, or by one that has it in its ``_base_``."""
    if key in referenced and not _is_option(root, key):
        return True
    origin = origin_of(root)
    source = origin.place_of(key).source if origin else None
    return source is not None and (key in source.names_read or bool(source.names_read & _READS_ALL))


def _is_used(root: Mapping[str, Any], key: str) -> bool:
    """Whether the value is found again in what a run reads, so that the key is one from which that was made.

    A config that was written with its variables filled in, as into a work dir, has many such keys.
    """
    wanted = root[key]
    for path, value in _values_of_sections(root):
        if isinstance(wanted, Mapping):
            is_there = isinstance(value, Mapping) and wanted.items() <= value.items()
        elif isinstance(wanted, str) and wanted:
            is_there = isinstance(value, str) and wanted in value
        elif isinstance(wanted, list | tuple) and wanted:
            is_there = isinstance(value, list | tuple) and list(wanted) == list(value)
        else:
            is_there = path[-1] == key and value == wanted
        if is_there:
            return True
    return False


def _values_of_sections(root: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Every value in the sections that a run reads."""
    return _walk({key: root[key] for key in TOP if key in root})


# --- values ----------------------------------------------------------------------------------------------------------

#: Sections that a class of the user's own may read.
_BY_HOOKS = (*SCHEDULES, 'optimizer_config', 'checkpoint_config', 'model_wrapper')

#: Sections in which texts that look like numbers are texts: addresses and ports, names of files and runs.
_TEXTUAL = ('dist_params', 'work_dir', 'load_from', 'resume_from', 'log_level', 'log_config', 'custom_imports')


def _wrong(root: Mapping[str, Any], path: Path, value: Any) -> Iterator[tuple[Any, str, str]]:
    """What is wrong with the value at ``path``: a level, what it is, and the way out."""
    kind = KINDS.get(kind_at(path))
    if why := why_nameless(value):
        yield 'warning', *why
    if is_mark(value):
        what = f'was a Python object, which a written config cannot hold: {value[len(OBJECT) :]}'
        yield 'error' if path[0] in ROOTS else 'warning', what, WAY_OUT + '.'
    elif kind is not None and value is not None and not kind.fits(value):
        holds_marks = isinstance(value, list | tuple) and any(map(is_mark, value))  # they come one by one
        if not holds_marks and (_is_known(root, path) or meant_by(value, kind) is not None):
            what = f'must be {kind.needed}, but got {printable(repr(value), 200)}'
            yield 'error', what, _way_out_of(root, path, value, kind)
    elif isinstance(value, Real) and not isinstance(value, int) and not isfinite(value):
        yield from _non_finite(root, path, float(value))
    elif isinstance(value, str) and kind is None and path[0] not in _TEXTUAL:
        if EXPONENT.fullmatch(value):
            yield 'warning', f'{value!r} is a string, not a number', _way_out_of(root, path, value, NUMBER)
        elif value in ('True', 'False', 'true', 'false') and not isinstance(path[-1], int):  # not names of classes
            yield 'warning', f'{value!r} is a string, which counts as true', _way_out_of(root, path, value, BOOL)


def _non_finite(root: Mapping[str, Any], path: Path, number: float) -> Iterator[tuple[Any, str, str]]:
    """An error in the sections of a run, where only `MAY_BE_INFINITE` may be infinite; a warning where classes of the
    user's own read the number, of which NaN is one everywhere."""
    holder = next((path[:n] for n in range(len(path), 0, -1) if kind_at(path[:n])), ())
    kind = KINDS[kind_at(holder)] if holder else None
    is_value = kind is not None and kind not in CONTAINERS
    if kind is not None and is_value and not kind.fits(reduce(getitem, holder, root)):
        return  # all of it is of a wrong type
    is_nan, is_ours = number != number, path[0] in ROOTS and path[0] not in ('model', 'data')
    if is_nan or ((is_ours or is_value) and kind_at(holder or path) not in MAY_BE_INFINITE):
        name = next(str(step) for step in reversed(path) if isinstance(step, str))
        level = 'error' if (is_value and _is_known(root, path)) or (is_nan and is_ours) else 'warning'
        yield level, f'must be finite, but is {number!r}', f'Give a finite number, or leave {name} out.'


def _is_known(root: Mapping[str, Any], path: Path) -> bool:
    """Whether the key at ``path`` has the meaning that `KINDS` gives it; a user's own hook may read other values."""
    return len(path) == 1 or path[0] not in _BY_HOOKS or has_known_reader(root, path[0])


def _way_out_of(root: Mapping[str, Any], path: Path, value: Any, kind: ValueKind) -> str:
    way_out = right_value(str(path[-1]), value, kind, written_at(root, path))
    return way_out.replace(f', or leave {path[0]} out', '') if path in ((key,) for key in REQUIRED) else way_out


# --- where keys were written -----------------------------------------------------------------------------------------


def _is_option(section: Mapping[str, Any], key: Any) -> bool:
    """Whether ``--cfg-options`` set the key."""
    origin = origin_of(section)
    return origin is not None and key in origin.keys and origin.keys[key].file == OPTIONS


def _is_new_option(section: Mapping[str, Any], key: Any) -> bool:
    """Whether ``--cfg-options`` added the key to a dict that did not have it."""
    origin = origin_of(section)
    return origin is not None and key in origin.added
