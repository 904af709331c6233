"""Importing modules by name, and classes by dotted path or by file."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from itertools import repeat
from types import ModuleType
from typing import Any

from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.suggest import suggestion
from runnerkit.utils.user_files import module_of_file

_MISSING = object()


class UnknownObject(ImportError):
    """A path to an object that does not exist; errors inside an existing module are raised as they are."""


def import_modules_from_strings(
    imports: str | Sequence[str] | None, allow_failed_imports: bool = False
) -> ModuleType | list[ModuleType | None] | None:
    """Import modules by name, so that their classes are registered.

    Args:
        imports: a dotted name or the path of a ``.py`` file, or a list of them.
        allow_failed_imports: if a module cannot be imported, warn and return None for it, instead of raising.

    Returns:
        The module, or a list of modules if a list was given; None if ``imports`` is empty.

    Raises:
        TypeError: ``imports`` is neither a string nor a list of strings.
        ImportError: a module cannot be imported.
    """
    if not imports:
        return None
    if isinstance(imports, str):
        return _import_module(imports, allow_failed_imports)
    if not isinstance(imports, list | tuple):
        raise TypeError(f'custom_imports must be a list but got type {type(imports)}')
    for name in imports:
        if not isinstance(name, str):
            raise TypeError(f'{name!r} is of type {type(name)} and cannot be imported: give the names of modules')
    # Not a comprehension: in Python 3.10 and 3.11 it adds a stack frame, and the warning would show a wrong line.
    return list(map(_import_module, imports, repeat(allow_failed_imports)))


def _import_module(name: str, allow_failure: bool) -> ModuleType | None:
    try:
        return module_of_file(name) if name.endswith('.py') else importlib.import_module(name)
    except ImportError as error:
        if not allow_failure:
            hint = ''
            if isinstance(error, ModuleNotFoundError) and name.split('.')[0] == error.name:
                file = '' if '.' in name else f", or name the file: '{name}.py'"
                hint = f' (install it, put the folder that holds it on PYTHONPATH{file})'
            raise ImportError(f'Failed to import {name}: {error}{hint}', name=error.name, path=error.path) from error
        warnings.warn(f'{name} failed to import and is ignored: {error}', UserWarning, stacklevel=3)
        return None


def import_object(path: str) -> Any:
    """The class, function or other object at ``'package.module.Name'`` or ``'path/to/file.py:Name'``.

    The name may have dots (``file.py:Outer.Inner``). A file is loaded only once, however its path is written.

    Raises:
        UnknownObject: an ImportError: there is no such module, or no such name in it.
        FileNotFoundError: there is no such file.
        ValueError: ``path`` has neither a dot nor a colon.
    """
    if ':' in path:
        file, _, name = path.rpartition(':')
        return _attribute(module_of_file(file), name, path)
    module_name, dot, _ = path.rpartition('.')
    if not dot:
        raise ValueError(
            f'{path!r} must be a dotted path to an object (torch.nn.ReLU) or one in a file (nets.py:LeNet)'
        )
    while module_name:
        module = _find_module(module_name)
        if module is not None:
            return _attribute(module, path[len(module_name) + 1 :], path)
        module_name = module_name.rpartition('.')[0]
    raise UnknownObject(f'there is no module {path.partition(".")[0]!r}')


def obj_from_dict(info: dict[str, Any], parent: Any = None, default_args: dict[str, Any] | None = None) -> Any:
    """Build an object from a dict with its class and constructor arguments.

    Args:
        info: ``type`` is the class or its name; the other items are arguments.
        parent: where a name is looked up, such as a module; None for dotted paths.
        default_args: arguments that ``info`` may override.

    Raises:
        TypeError: ``type`` is neither a class nor a name; ``info`` or ``default_args`` is not a dict.
        ValueError: ``info`` has no ``type``.
        AttributeError: ``parent`` has no such name.
    """
    if not isinstance(info, dict):
        raise WrongType(f'info must be a dict with a type in it, but got {type(info)}: {info!r}')
    if default_args is not None and not isinstance(default_args, dict):
        raise WrongType(f'default_args must be a dict or None, but got {type(default_args)}: {default_args!r}')
    if 'type' not in info:
        raise WrongValue(f'info must have a type, such as dict(type="SGD", lr=0.1), but has only {list(info)}')
    arguments = {**(default_args or {}), **info}
    made = arguments.pop('type')
    if isinstance(made, str):
        made = getattr(parent, made) if parent is not None else import_object(made)
    elif not isinstance(made, type):
        raise TypeError(f'type must be a str or valid type, but got {type(made)}: {made!r}')
    return made(**arguments)


def _find_module(name: str) -> ModuleType | None:
    """The module ``name``, imported; None if it does not exist. Errors inside it are raised."""
    if name in sys.modules:
        return sys.modules[name]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # The module or its package is missing, not something that it imports.
        if error.name is not None and (name == error.name or name.startswith(error.name + '.')):
            return None
        raise


def _attribute(module: ModuleType, name: str, path: str) -> Any:
    found: Any = module
    for part in name.split('.'):
        holder, found = found, getattr(found, part, _MISSING)
        if found is _MISSING:
            hint = suggestion(part, [known for known in dir(holder) if not known.startswith('_')])
            where = module.__file__ if ':' in path else getattr(holder, '__name__', holder)
            raise UnknownObject(f'{where} has no {part!r}{hint}')
    return found
