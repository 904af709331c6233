"""The config in a checkpoint's meta: read as data, and built only of classes that are registered already."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from runnerkit.config import Config
from runnerkit.config.config import import_modules_of
from runnerkit.config.known_keys import LOADER_FUNCTIONS
from runnerkit.config.literals import read_literals
from runnerkit.config.pretty import path_of
from runnerkit.data.builder import DATASETS, SAMPLERS, TRANSFORMS
from runnerkit.nn import Supervised
from runnerkit.nn.builder import LOSSES, MODELS
from runnerkit.nn.weight_init import INITIALIZERS
from runnerkit.registry import FUNCTIONS, Registry
from runnerkit.utils.logging import printable
from runnerkit.utils.signatures import function_arguments
from runnerkit.utils.user_files import name_of_file

#: Where a ``type`` may be registered. Metrics are left out, see `config_in`.
REGISTRIES = (MODELS, LOSSES, DATASETS, TRANSFORMS)


def model_alone(cfg: Config) -> list[Any]:
    """What is built of a config if nothing but its model is needed."""
    return [cfg.get('model')]


def config_in(
    meta: Mapping[str, Any], path: str, trust: bool, parts: Callable[[Config], Iterable[Any]] = model_alone
) -> Config:
    """The config that the checkpoint at ``path`` holds in its ``meta``.

    Its text is never executed. Unless it is trusted, its ``custom_imports`` must be imported already, and every dotted
    or ``file.py:Class`` type in its ``parts`` must be a class that is registered already; it is replaced by that class.
    A function may be named only as it is registered.
    Metrics are removed: predictions need none, and some of those in torchmetrics load models by name. So is
    ``num_threads``, since a number of threads that is much too large crashes the process.

    Args:
        meta: of the checkpoint.
        path: of the checkpoint, for messages.
        trust: import what the config names.
        parts: returns what will be built of the config; nothing else may be.

    Raises:
        ValueError: there is no config, its text is not data alone, or it names code that is not registered.
    """
    way_out = (
        "pass the config as a file that you know, config='…/config.py' (predict CONFIG --checkpoint …)"
        + _work_dir_of(path)
    )
    text = meta.get('config')
    if not isinstance(text, str):
        raise ValueError(f'{path} holds no config, so the model is not known: {way_out}')
    try:
        cfg = Config(read_literals(text), cfg_text=text)
    except (ValueError, KeyError) as error:
        problem = printable(error.args[0] if error.args else error)
        raise ValueError(
            f'the config in {path} cannot be read as data: {problem}. It was not executed; {way_out}'
        ) from None
    if trust:
        import_modules_of(cfg._cfg_dict)
        return cfg
    if 'num_threads' in cfg:
        del cfg['num_threads']
    code = [*_not_imported(cfg), *(name for part in parts(cfg) for name in _use_registered(part))]
    if code:
        raise ValueError(
            f'the config in {path} names code: {printable(", ".join(dict.fromkeys(code)), 300)}. Nothing was imported. '
            f'Import the modules that register these classes first; or {way_out}; or, if you trust whoever made the '
            'file, say trust=True (--trust)'
        )
    return cfg


def _work_dir_of(path: str) -> str:
    folder = Path(path).absolute().parent
    return f', or its whole work dir, {str(folder)!r}' if (folder / '.flow.json').exists() else ''


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


def _use_registered(section: Any) -> Iterator[str]:
    """Replace paths to registered classes in ``section`` by the classes, and remove metrics; yield the other paths."""
    if isinstance(section, str) and '.py:' in section:
        yield f'function {section!r}'
    if isinstance(section, list | tuple):
        for item in section:
            yield from _use_registered(item)
    if not isinstance(section, dict):
        return
    named = section.get('type')
    found = _registered(named) if isinstance(named, str) else None
    if isinstance(named, str) and any(mark in named for mark in '.:'):
        if found is None:
            yield f'type {named!r}'
        else:
            section['type'] = found
    if inspect.isclass(found) and issubclass(found, Supervised):
        section.pop('metrics', None)
    others = (each._get_by_name(named) for each in (SAMPLERS, INITIALIZERS) if isinstance(named, str))
    yield from _functions_named(section, found or next(filter(None, others), None))
    for key, item in section.items():
        if key != 'type':
            yield from _use_registered(item)


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


def _registered(name: str) -> Any:
    """The registered class that a name, a dotted path or ``file.py:Class`` stands for; None if none is.

    Nothing is imported for it.
    """
    module, _, last = name.replace(':', '.').rpartition('.')
    held = vars(sys.modules[module]).get(last) if module in sys.modules else None
    for registry in REGISTRIES:
        by_name = registry._get_by_name(name)
        if by_name is not None:
            return by_name
        for candidate in (registry._get_by_name(last), *_all_of(registry)):
            if candidate is not None and (candidate is held or path_of(candidate) == name):
                return candidate
    return None


def _all_of(registry: Registry) -> Iterator[Any]:
    yield from registry.module_dict.values()
    for child in registry.children.values():
        yield from _all_of(child)
