"""The config in a file from elsewhere, such as a checkpoint: read as data, and built only of what it may name.

What a config may name without trust is decided in `runnerkit.utils.nameable`. Here it is looked for: in the parts of
the config that will be built, at any depth.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from runnerkit.config import Config
from runnerkit.config.config import import_modules_of
from runnerkit.config.literals import read_literals
from runnerkit.config.pretty import path_of
from runnerkit.flow.work_dir.made_here import NOT_MADE_HERE, config_of, is_made_here
from runnerkit.nn import METRICS, Supervised
from runnerkit.registry import FUNCTIONS, Registry
from runnerkit.utils.logging import printable
from runnerkit.utils.nameable import is_listed, is_nameable, names_place
from runnerkit.utils.signatures import LOADER_FUNCTIONS, function_arguments
from runnerkit.utils.user_files import name_of_file

#: Where a model's weights come from before those of the checkpoint replace them.
_FIRST_WEIGHTS = ('init_cfg', 'pretrained')

#: Keys whose text may name a class or a function.
_NAMING = ('type', 'loss')

#: The registries of runnerkit in which there is something that may be named, by their names.
_OF_WHAT_COMPUTES = ('model', 'loss', 'dataset', 'transform', 'sampler', 'initializer', 'function')

#: The most that a file may ask for in the settings of a loader: more could exhaust this machine.
_MOST = {
    **dict.fromkeys(('samples_per_gpu', 'batch_size'), 1024),
    **dict.fromkeys(('workers_per_gpu', 'num_workers'), os.cpu_count() or 1),
    'prefetch_factor': 4,
    'num_gpus': 1,
}

Parts = Callable[[Config], Iterable[Any]]


class _Refused(ValueError):
    """A text is not data alone, or names what it may not."""


def model_alone(cfg: Config) -> list[Any]:
    """What is built of a config if nothing but its model is needed."""
    return [cfg.get('model')]


def config_in(meta: Mapping[str, Any], path: str, trust: bool, parts: Parts = model_alone) -> Config:
    """The config that the checkpoint at ``path`` holds in its ``meta``.

    Its text is never executed. Unless it is trusted, nothing is imported, and what its ``parts`` name must be
    nameable (`runnerkit.utils.nameable`): ``custom_imports`` must be imported already; a dotted or ``file.py:Class``
    type must be a registered class, which replaces it, or one of the list; and a class of the user's own gets no path,
    URL or host from the config. A function may be named only as it is registered.

    What a prediction does not need is left out: metrics; the first weights of the model, which the checkpoint replaces;
    and ``num_threads``, since a number that is much too large crashes the process. The numbers of loaders are limited.

    Args:
        meta: of the checkpoint.
        path: of the checkpoint, for messages.
        trust: import what the config names.
        parts: returns what will be built of the config; nothing else may be.

    Raises:
        ValueError: there is no config, its text is not data alone, or it names what it may not.
    """
    way_out = "pass the config as a file that you know, config='…/config.py' (predict CONFIG --checkpoint …)"
    config = config_of(folder := Path(path).absolute().parent)
    if config is not None and is_made_here(config):
        way_out += f', or its whole work dir, {str(folder)!r}'
    text = meta.get('config')
    if not isinstance(text, str):
        raise ValueError(f'{path} holds no config, so the model is not known: {way_out}')
    try:
        return _read(text, trust, parts)
    except _Refused as refused:
        raise ValueError(f'the config in {path} {refused}; {way_out}') from None


def config_in_work_dir(path: Path, parts: Parts = model_alone) -> Config:
    """The config of a work dir that was not made here, read as `config_in` reads that of a checkpoint.

    Args:
        path: the config file.
        parts: see `config_in`.

    Raises:
        ValueError: see `config_in`.
    """
    try:
        return _read(path.read_text(encoding='utf-8', errors='replace'), False, parts)
    except _Refused as refused:
        raise ValueError(f'{path.parent}: {NOT_MADE_HERE}. Read as data, {path.name} {refused}') from None


def _read(text: str, trust: bool, parts: Parts) -> Config:
    try:
        cfg = Config(read_literals(text), cfg_text=text)
    except (ValueError, KeyError) as error:
        problem = printable(error.args[0] if error.args else error)
        raise _Refused(f'cannot be read as data: {problem}. It was not executed') from None
    if trust:
        import_modules_of(cfg._cfg_dict)
        return cfg
    if 'num_threads' in cfg:
        del cfg['num_threads']
    _limit_loaders(cfg.get('data'))
    code, places = list(_not_imported(cfg)), list[str]()
    for part in parts(cfg):
        _check(part, None, code, places)
    if not code and not places:
        return cfg
    named = '; and '.join(
        f'{kind}: {printable(", ".join(dict.fromkeys(found)), 300)}'
        for kind, found in (('code', code), ('places', places))
        if found
    )
    raise _Refused(
        f'names {named}. Nothing was imported, opened or built. Import the modules that register your classes '
        'first. If you trust the author, add --trust (trust=True)'
    )


def _limit_loaders(data: Any) -> None:
    """Lower the numbers of ``data`` and of the loaders in it to what one machine has."""
    sections = (
        [data, *(data[key] for key in data if str(key).endswith('_dataloader'))] if isinstance(data, dict) else []
    )
    for section in (each for each in sections if isinstance(each, dict)):
        for key, most in _MOST.items():
            if isinstance(section.get(key), int):  # other kinds are refused later
                section[key] = min(section[key], most)


def _not_imported(cfg: Config) -> Iterator[str]:
    """The modules and files in ``custom_imports`` that have not been imported in this process."""
    wanted = cfg.get('custom_imports')
    names = wanted.get('imports') if isinstance(wanted, Mapping) else wanted
    for name in names if isinstance(names, list | tuple) else [names] if names else ():
        is_file = isinstance(name, str) and name.endswith('.py')
        if (
            not isinstance(name, str)
            or (name_of_file(Path(name).expanduser().resolve()) if is_file else name) not in sys.modules
        ):
            yield f'custom_imports {name!r}'


def _functions_named(section: Mapping[str, Any], constructor: Any) -> Iterator[str]:
    """The paths in ``section`` where functions may stand.

    Args:
        section: a part of a config.
        constructor: what is built of it; None for the options of a loader.
    """
    for key in LOADER_FUNCTIONS if constructor is None else function_arguments(constructor):
        value = section.get(key)
        for each in value if isinstance(value, list | tuple) else [value]:
            if isinstance(each, str) and set('.:') & set(each) and FUNCTIONS._get_by_name(each) is None:
                yield f'function {each!r}'


def _check(section: Any, owner: Any, code: list[str], places: list[str], key: Any = None) -> None:
    """Look at everything in ``section``; make it what may be built, and add what it may not name to the lists.

    Args:
        section: a config, or a value in one.
        owner: the class or function that gets it; None if that is not known.
        code: the types that may not be named.
        places: the arguments that may not be given.
        key: of the section.
    """
    if isinstance(section, list | tuple | set | frozenset):
        for item in section:
            _check(item, owner, code, places, key)
    elif isinstance(section, dict):
        of_user = owner is not None and not is_listed(owner)
        named = {
            key: _use_nameable(section, key, code, of_user) for key in _NAMING if isinstance(section.get(key), str)
        }
        made = named.get('type')
        if made is not None or owner is None:
            code += _functions_named(section, made)
        owner = owner if made is None else made
        for name in _FIRST_WEIGHTS:
            if section.get(name):
                section[name] = None
        if inspect.isclass(made) and issubclass(made, Supervised):
            section.pop('metrics', None)
        for name, item in section.items():
            if name not in named:
                _check(item, owner, code, places, name)
        _check([each for each in section if not str(each).isidentifier()], owner, code, places)
    elif isinstance(section, str) and '.py:' in section:
        code.append(f'function {section!r}')
    elif (owner is None or (is_nameable(owner) and not is_listed(owner))) and names_place(key, section):
        named_so = f'the key {section!r}' if key is None else f'{key}={section!r}'
        places.append(named_so + ('' if owner is None else f' of {owner.__name__}'))


def _use_nameable(section: dict[Any, Any], key: str, code: list[str], of_user: bool) -> Any:
    """What the text ``section[key]`` names, if it may be named; a path is replaced by it."""
    name = section[key]
    is_path = any(mark in name for mark in '.:')
    found = list(_found_by_path(name) if is_path else _found_by_name(name, of_user))
    if any(not is_nameable(made) or _holds_what_acts(registry) for registry, made in found):
        code.append(f'{key} {name!r}, which may do more than compute')
    elif found and is_path:
        section[key] = found[0][1]
    elif is_path:
        code.append(f'{key} {name!r}')
    return found[0][1] if found else None


def _holds_what_acts(registry: Registry | None) -> bool:
    """Whether nothing in a registry of runnerkit may be named, not even what the user has registered there."""
    return registry is not None and registry.scope == 'runnerkit' and registry.name not in _OF_WHAT_COMPUTES


def _found_by_name(name: str, of_user: bool) -> Iterator[tuple[Registry, Any]]:
    """All that ``name`` may be, in whichever registry it will be looked up."""
    registries = list(Registry.everywhere)
    found = [(each, each.loaded[name]) for each in registries if name in each.loaded]
    found = found or [(each, _found_behind(each, name)) for each in registries if each is not METRICS]
    found = [(registry, made) for registry, made in found if made is not None]
    yield from found
    if of_user and not found and find_spec('torchmetrics'):  # slow: it is imported
        made = METRICS._get_here(name)
        if made is not None:
            yield METRICS, made


def _found_by_path(name: str) -> Iterator[tuple[Registry | None, Any]]:
    """The registered classes, and those on the list, that a dotted path or ``file.py:Class`` names."""
    module, _, last = name.replace(':', '.').rpartition('.')
    held = getattr(sys.modules.get(module), '__dict__', {}).get(last)
    if (inspect.isclass(held) or inspect.isroutine(held)) and is_listed(held):
        yield None, held
    scope, _, rest = name.partition('.')
    for registry in list(Registry.everywhere):
        for known, made in registry.loaded.items():
            if made is held or name in (known, path_of(made)) or (registry.scope, known) == (scope, rest):
                yield registry, made
        if registry.scope == scope and rest.isidentifier() and registry is not METRICS:
            made = _found_behind(registry, rest)
            if made is not None:
                yield registry, made


class _NotImported:
    """A placeholder for what a registry would import by a name, which may not be named."""


def _found_behind(registry: Registry, name: str) -> Any:
    """What ``registry`` finds by a name that is not registered. Where nothing may be named, nothing is imported to know
    that: an entry point leads to whatever its package has written."""
    if _holds_what_acts(registry):
        return _NotImported if name in registry.names() else None
    return registry._get_here(name)
