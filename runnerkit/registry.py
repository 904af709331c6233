"""Registering classes and functions by name, and building objects from configs that use these names.

A config names a class or function in its key ``type``; all other keys are its arguments::

    MODELS = Registry('model')

    @MODELS.register_module()
    class Net:
        def __init__(self, width): ...

    MODELS.build(dict(type='Net', width=8))

A ``type`` may be a registered name, a class or function, a dotted path (``torch.nn.ReLU``) or a class in a file
(``nets/lenet.py:LeNet``).
"""

from __future__ import annotations

import builtins
import copy
import inspect
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, NoReturn, TypeVar
from weakref import WeakSet

from runnerkit.utils.exceptions import WrongKey, raise_with_context
from runnerkit.utils.imports import UnknownObject, import_object
from runnerkit.utils.signatures import function_arguments, parameters_of
from runnerkit.utils.suggest import did_you_mean, suggestion

#: The maximum number of registered names in an error message.
MAX_LISTED = 20

#: Messages of Python, and of functions written in C, about an unknown argument.
_UNKNOWN_ARGUMENT = re.compile(r"unexpected keyword argument '(\w+)'|'(\w+)' is an invalid keyword argument")

#: Set on an error whose message already has the file and line of the config.
_PLACED = '_runnerkit_placed'

_Error = TypeVar('_Error', bound=Exception)


def build_from_cfg(cfg: dict[str, Any], registry: Registry, default_args: dict[str, Any] | None = None) -> Any:
    """Call the class or function ``cfg['type']`` with the other keys as arguments.

    Neither ``cfg`` nor ``default_args`` is changed: the constructor gets copies of all dicts, lists and tuples in
    ``cfg``. To share a container, pass it in ``default_args``, of which only configs are copied.

    Args:
        cfg: ``type`` and arguments.
        registry: where a ``type`` that is a name is looked up.
        default_args: arguments, or a ``type``, that ``cfg`` may override.

    Raises:
        TypeError: ``cfg``, ``registry``, ``default_args`` or the ``type`` is of a wrong type.
        KeyError: there is no ``type``, or it is not registered.
        Exception: the constructor's error, of the same class; if possible, its message then begins with the name of
            the class.
    """
    if not isinstance(cfg, dict):
        raise TypeError(f'cfg must be a dict, but got {type(cfg)}: {cfg!r}')
    if not isinstance(registry, Registry):
        raise TypeError(f'registry must be a runnerkit Registry object, but got {type(registry)}')
    if not (default_args is None or isinstance(default_args, dict)):
        raise TypeError(f'default_args must be a dict or None, but got {type(default_args)}')
    args: dict[str, Any] = {key: _own_copy(value) for key, value in cfg.items()}
    for key, value in (default_args or {}).items():
        args.setdefault(key, _own_copy(value) if hasattr(type(value), '_origin_') else value)
    if 'type' not in args:
        defaults = f' and defaults for {", ".join(default_args)}' if default_args else ''
        message = f'`cfg` or `default_args` must contain the key "type", but got {cfg!r}{defaults}'
        raise _mark_placed(KeyError(message + _written_at(cfg)), cfg)
    constructor = _find_constructor(args.pop('type'), registry, cfg)
    try:
        _find_functions(args, constructor, cfg)
        return constructor(**args)
    except Exception as error:
        _raise_annotated(error, constructor, args, cfg)


def find_function(value: Any, key: str, cfg: Any = None) -> Any:
    """The function that a config says for ``key``: wherever a function may stand, its name may stand."""
    if value is None or callable(value):
        return value
    if isinstance(value, list | tuple):
        return type(value)(find_function(each, key, cfg) for each in value)
    if not isinstance(value, str) and not (isinstance(value, dict) and 'type' in value):
        raise TypeError(
            f'{key} must be a function or its name ({_FUNCTION_NAMES}), or dict(type=name, …) with arguments, but got '
            f'{value!r}'
        )
    with placed_errors(cfg, key), _begun_with_key(key):
        arguments = {name: _own_copy(each) for name, each in value.items()} if isinstance(value, dict) else {}
        found = _find_constructor(arguments.pop('type', value), FUNCTIONS, value)
        if inspect.isclass(found) and any('__call__' in vars(cls) for cls in found.__mro__):
            return build_from_cfg({**arguments, 'type': found}, FUNCTIONS)
        try:
            inspect.signature(found).bind_partial(**arguments)
        except ValueError:  # some C functions have no signature
            pass
        except TypeError as error:
            _raise_annotated(error, found, arguments, value)
        return partial(found, **arguments) if arguments else found


def build_or_bind(cfg: dict[str, Any], registry: Registry) -> Any:
    """Build from a config something that is called later: a function that still lacks arguments gets those of ``cfg``
    bound (``dict(type='my_losses.py:focal', gamma=2)``); what has all of them, or is a class, is called as ever.
    """
    named = cfg.get('type')
    found = registry.get(named) if isinstance(named, str) else named
    if inspect.isroutine(found):
        arguments = {key: value for key, value in cfg.items() if key != 'type'}
        try:
            inspect.signature(found).bind(**arguments)
        except TypeError:
            return find_function({**arguments, 'type': found}, registry.name)
        except ValueError:  # some C functions have no signature
            pass
    return registry.build(cfg)


def _find_functions(args: dict[str, Any], constructor: Callable[..., Any], cfg: Any) -> None:
    """Replace names of functions in ``args`` by the functions, where annotations of ``constructor`` ask for functions.

    A dict is left to a constructor that reads dicts, or may look its ``type`` up in another registry.
    """
    if not any(isinstance(value, str | dict | list | tuple) for value in args.values()):
        return
    for name, reads_dicts in function_arguments(constructor).items():
        value = args.get(name)
        if isinstance(value, dict):
            named = value.get('type')
            found = FUNCTIONS.get(named) if isinstance(named, str) and not reads_dicts else named
            is_name = callable(found) and not reads_dicts
        else:
            each = value if isinstance(value, list | tuple) else [value]
            is_name = all(isinstance(item, str) or callable(item) for item in each)
        if is_name:
            args[name] = find_function(value, name, cfg)


@contextmanager
def placed_errors(cfg: Any, key: str | None = None, name: str | None = None) -> Iterator[None]:
    """Add to the message of an error raised inside where the config in question was written, as `build_from_cfg` does.

    The place is that of the key that the message names, if there is one, else that of the whole section. An error that
    has a place already is not changed; nor is one about what a flag says, whose name is in the place of ``cfg`` then.
    """
    try:
        yield
    except Exception as error:
        whole = getattr(cfg, '__dict__', {}).get('_cfg_dict', cfg)  # of a Config
        section = whole if key is None or not isinstance(whole, dict) else whole.get(key)
        place = _place_of_named(section, str(error)) or _written_at(whole, key)
        if isinstance(cfg, str):
            setattr(error, _PLACED, True)
        if not place or is_placed(error):
            raise
        setattr(error, _PLACED, True)
        name = name or key
        is_named = name is None or re.search(rf'\b{re.escape(name)}\b', str(error))
        note = f'{name}{place}' if name else place[2:-1]
        after = '' if place in str(error) else place
        raise_with_context(error, '' if is_named else f'{name}: ', after, note=note)


def is_placed(error: BaseException) -> bool:
    """Whether the message of ``error`` names the line of a config, or the flag, that is wrong."""
    return hasattr(error, _PLACED)


def _place_of_named(section: Any, message: str) -> str:
    """The place of the key of ``section``, or of a dict in it, that ``message`` names first; empty if there is none."""
    if not isinstance(section, dict):
        return ''
    found = {
        key: match.start()
        for key in section
        if isinstance(key, str) and key != 'type' and (match := re.search(rf'\b{re.escape(key)}\b', message))
    }
    if found:
        return _written_at(section, min(found, key=found.__getitem__))
    return next((place for value in section.values() if (place := _place_of_named(value, message))), '')


class Registry:
    """A table of classes and functions by name.

    Registries can form a tree: a library's registry is a child of the one it extends. They find each other by scope,
    the name of the package that created the registry (``mmdet.ResNet``). A name without a scope is looked up in one
    registry only.

    Args:
        name: what is registered, for messages ('hook').
        build_func: called by `build` as ``build_func(cfg, ..., registry=self)``; by default the parent's, else
            `build_from_cfg`.
        parent: the registry that this one extends.
        scope: the name of this registry in the tree; by default the package that creates it.
        fallback: called with names that are not registered; returns the class or None. It makes the classes of a
            library available by name without importing it first.
        fallback_names: returns the names that ``fallback`` supports, for suggestions.
    """

    #: All registries that there are.
    everywhere: ClassVar[WeakSet[Registry]] = WeakSet()

    def __init__(
        self,
        name: str,
        build_func: Callable[..., Any] | None = None,
        parent: Registry | None = None,
        scope: str | None = None,
        *,
        fallback: Callable[[str], Any] | None = None,
        fallback_names: Callable[[], Iterable[str]] | None = None,
    ) -> None:
        if not (parent is None or isinstance(parent, Registry)):
            raise TypeError(f'parent must be a Registry or None, but got {type(parent)}')
        self._name = name
        self._module_dict: dict[str, Any] = {}
        self._offered: dict[str, str] = {}
        self._children: dict[str, Registry] = {}
        self._scope = self.infer_scope() if scope is None else scope
        self._fallback = fallback
        self._fallback_names = fallback_names
        self.build_func: Callable[..., Any] = build_func or (
            parent.build_func if parent is not None else build_from_cfg
        )
        self.parent = parent
        if parent is not None and parent._children.setdefault(self.scope, self) is not self:
            raise WrongKey(
                f'scope {self.scope} exists in {parent.name} registry; pass another `scope` to one of the two'
            )
        self.everywhere.add(self)

    def __len__(self) -> int:
        return len(self.module_dict)

    def __contains__(self, key: str) -> bool:
        """Whether ``key`` is a registered name, here or (with a scope) in the tree; paths to classes do not count."""
        return self._get_by_name(key) is not None

    def __repr__(self) -> str:
        return f'{type(self).__name__}(name={self._name}, items={self.module_dict})'

    @staticmethod
    def infer_scope() -> str:
        """The top-level package of the caller's caller."""
        frame = sys._getframe(1)
        caller = frame.f_back or frame
        return str(caller.f_globals.get('__name__', '__main__')).split('.')[0]

    @staticmethod
    def split_scope_key(key: str) -> tuple[str | None, str]:
        """Split ``'mmdet.ResNet'`` into scope and name; the scope may be None."""
        scope, dot, rest = key.partition('.')
        return (scope, rest) if dot else (None, key)

    @property
    def name(self) -> str:
        """The kind of objects registered here, for messages."""
        return self._name

    @property
    def scope(self) -> str:
        """The name of this registry in the tree."""
        return self._scope

    @property
    def module_dict(self) -> dict[str, Any]:
        """The registered objects, by name. Those that are offered are imported."""
        for name in self._offered:
            self._import_offered(name)
        return self._module_dict

    @property
    def loaded(self) -> dict[str, Any]:
        """The registered objects whose modules are imported, by name."""
        return self._module_dict

    def loaded_with_children(self) -> tuple[Any, ...]:
        """`loaded` objects of this registry and of those below it."""
        registries = [self]
        for registry in registries:
            registries += registry._children.values()
        return tuple(each for registry in registries for each in registry._module_dict.values())

    def registered(self, name: str) -> Any | None:
        """What is registered here under ``name``; None if nothing is. Neither fallback nor import paths count."""
        self._import_offered(name)
        return self._module_dict.get(name)

    @property
    def children(self) -> dict[str, Registry]:
        """The registries that extend this one, by scope."""
        return self._children

    def names(self) -> list[str]:
        """All names that `get` finds without a scope, including those of the fallback, sorted."""
        return sorted({*self._module_dict, *self._offered, *(self._fallback_names() if self._fallback_names else ())})

    def offer(self, homes: Mapping[str, str]) -> None:
        """Register names without importing their modules, which register them when a name is first looked up.

        Args:
            homes: the module of each name.
        """
        self._offered.update(homes)

    def get(self, key: str) -> Any | None:
        """The class or function called ``key``; None if there is none.

        Args:
            key: a registered name, optionally with a scope; a dotted import path; or ``path/to/file.py:Name``.

        Raises:
            FileNotFoundError: the file in ``key`` does not exist.
            ImportError: the file has no such class. Errors raised by a module during its import are not changed.
        """
        if ':' in key and key not in self._module_dict:
            return import_object(key)
        found = self._get_by_name(key)
        if found is None and '.' in key:
            try:
                found = import_object(key)
            except UnknownObject:
                return None
        return found

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Build an object from a config with the registry's ``build_func``."""
        return self.build_func(*args, **kwargs, registry=self)

    def register_module(
        self, name: str | Sequence[str] | type | None = None, force: bool = False, module: Any = None
    ) -> Any:
        """Register a class or function, as a decorator or by a plain call.

        MMCV's oldest form, ``@HOOKS.register_module`` without parentheses, works with a warning.

        Args:
            name: one or several names; by default the class's own.
            force: replace what is registered under the name.
            module: the class or function, if this is not used as a decorator.

        Returns:
            The class or function, or a decorator that returns it.

        Raises:
            KeyError: the name is already registered. (A class that a notebook's cell defines again replaces the former
                one.)
            TypeError: an argument is of a wrong type.
        """
        if not isinstance(force, bool):
            raise TypeError(f'force must be a boolean, but got {type(force)}')
        if inspect.isclass(name) or inspect.isfunction(name):
            return self.deprecated_register_module(name, force)
        names = name if isinstance(name, Sequence) and not isinstance(name, str) else [name]
        if not (name is None or all(isinstance(each, str) for each in names)):
            raise TypeError(
                f'name must be either of None, an instance of str or a sequence of str, but got {type(name)}'
            )
        if module is not None:
            self._register_module(module, name, force)
            return module

        def register(decorated: Any) -> Any:
            self._register_module(decorated, name, force)
            return decorated

        return register

    def deprecated_register_module(self, cls: Any = None, force: bool = False) -> Any:
        """`register_module` in its oldest form, with the class as first argument."""
        warnings.warn(
            'The old API of register_module(module, force=False) is deprecated: write register_module() with '
            'parentheses, or register_module(module=…)',
            DeprecationWarning,
            stacklevel=3,
        )
        if cls is None:
            return partial(self.deprecated_register_module, force=force)
        self._register_module(cls, force=force)
        return cls

    def _register_module(self, module: Any, module_name: Any = None, force: bool = False) -> None:
        if not (inspect.isclass(module) or inspect.isfunction(module)):
            raise TypeError(f'module must be a class or a function, but got {type(module)}')
        names = [module_name or module.__name__] if isinstance(module_name, str | None) else list(module_name)
        for name in names:
            if self._offered.get(name) != module.__module__:
                self._import_offered(name)
            if not force and name in self._module_dict and not _is_defined_again(self._module_dict[name], module):
                raise KeyError(
                    f'{name} is already registered in {self.name}, as {_full_path(self._module_dict[name])}; '
                    f'choose another name, or pass force=True to replace it'
                )
        self._module_dict.update(dict.fromkeys(names, module))

    def _get_by_name(self, key: str) -> Any | None:
        scope, rest = self.split_scope_key(key)
        if scope is None:
            return self._get_here(key)
        found = None
        if scope == self._scope:
            found = self._get_here(rest)
        elif scope in self._children:
            found = self._children[scope]._get_by_name(rest)
        if found is None:
            # The parent may know the key: for a grandchild, its parent's scope is the first part of its path from the
            # root.
            found = self._get_here(key) if self.parent is None else self.parent._get_by_name(key)
        return found

    def _import_offered(self, name: str) -> None:
        """Import the module that registers ``name``, if it has not done so yet."""
        if name in self._offered and name not in self._module_dict:
            import_module(self._offered[name])

    def _get_here(self, name: str) -> Any | None:
        found = self.registered(name)
        if found is None and self._fallback is not None:
            return self._fallback(name)
        return found


#: Functions of users by name. A path names a function, too, so that few need to be registered.
FUNCTIONS = Registry('function')

_FUNCTION_NAMES = "'my_file.py:function', 'package.module.function', or one registered in FUNCTIONS"


@contextmanager
def _begun_with_key(key: str) -> Iterator[None]:
    """Begin the message of an error raised inside with ``key``."""
    try:
        yield
    except Exception as error:
        raise_with_context(error, f'{key}: ')


def _name_of(function: Any) -> str:
    return getattr(function, '__name__', None) or repr(function)


def _is_defined_again(former: Any, module: Any) -> bool:
    """Whether a notebook's cell, or a line of an interactive session, that defined ``former`` was run again."""
    main = sys.modules.get('__main__')
    is_interactive = hasattr(builtins, '__IPYTHON__') or not hasattr(main, '__file__')
    return is_interactive and former.__module__ == '__main__' and _full_path(former) == _full_path(module)


def _full_path(module: Any) -> str:
    return f'{module.__module__}.{module.__qualname__}'


def _own_copy(value: Any) -> Any:
    """``value`` with every container in it copied, but not the other objects."""
    if isinstance(value, dict):
        fresh = copy.copy(value)
        for key in fresh:
            fresh[key] = _own_copy(fresh[key])
        return fresh
    if type(value) in (list, tuple):
        return type(value)(_own_copy(item) for item in value)
    return value


def _written_at(cfg: Any, key: str | None = None) -> str:
    """Where ``cfg``, or its ``key``, was written, as `` (file:line)``; empty if unknown."""
    # Look it up in the class: an addict.Dict has every attribute.
    origin = cfg._origin_ if hasattr(type(cfg), '_origin_') else None
    if origin is None:
        return ''
    return f' ({origin if key is None else origin.of(key)})'


def _find_constructor(named: Any, registry: Registry, cfg: Any) -> Callable[..., Any]:
    if isinstance(named, str):
        try:
            found = registry.get(named)
        except Exception as error:
            if isinstance(error, FileNotFoundError):
                near = _near_files(named, cfg)
                error.args = (f'{error}{"" if near in str(error) else near}',)
            _raise_annotated(error, named, {}, cfg)
        if found is None:
            raise _mark_placed(KeyError(_unknown_type(named, registry, cfg)), cfg)
        named = found
    if not callable(named):
        message = (
            f'type must be a str or valid type, but got {type(named)}: {named!r}{_written_at(cfg, "type")}; '
            f'give a registered name, a class, or a path to one'
        )
        raise _mark_placed(TypeError(message), cfg)
    return named


def _near_files(named: str, cfg: Any) -> str:
    """Files with a name similar to that in ``named``, in the folder of the config file."""
    origin = cfg._origin_ if hasattr(type(cfg), '_origin_') else None
    folder = os.path.dirname(origin.place_of('type').file) if origin else ''
    names = [name for name in os.listdir(folder) if name.endswith('.py')] if os.path.isdir(folder) else []
    return suggestion(os.path.basename(named.rpartition(':')[0]), names)


def _unknown_type(name: str, registry: Registry, cfg: Any) -> str:
    """The message for an unknown ``type``: similar names, all names, where it was written, the way out."""
    names = registry.names()
    hint = did_you_mean(name, names)
    listed = ', '.join(names[:MAX_LISTED]) + (f', … ({len(names)} in all)' if len(names) > MAX_LISTED else '')
    parts = [
        f'{name} is not in the {registry.name} registry{_written_at(cfg, "type")}',
        f'; {hint} ' if hint else '. ',
        f'Registered: {listed or "nothing yet"}.',
    ]
    if '.' in name:
        try:
            import_object(name)
        except UnknownObject as error:
            parts.append(f' As an import path: {error}.')
    if registry is FUNCTIONS:
        parts.append(f' For your own function, write {_FUNCTION_NAMES}; for a class, dict(type={name!r}).')
        return ''.join(parts)
    parts.append(" To use your own class, import its module: custom_imports=dict(imports=['your.module']).")
    return ''.join(parts)


def _raise_annotated(error: Exception, constructor: Any, args: dict[str, Any], cfg: Any) -> NoReturn:
    """Raise ``error`` again, with the class (or name, if there is none) being built, and the place of its config."""
    name = constructor if isinstance(constructor, str) else _name_of(constructor)
    detail, where = '', _written_at(cfg)
    unknown = _UNKNOWN_ARGUMENT.search(str(error)) if isinstance(error, TypeError) else None
    key = unknown[1] or unknown[2] if unknown else None
    accepted = list(parameters_of(constructor)) if key in args else []
    if key in args and key not in accepted:
        # Python 3.13 adds its own suggestion for some functions.
        hint = '' if 'Did you mean' in str(error) else suggestion(key, accepted)
        detail = hint + (f' (it takes {", ".join(accepted)})' if accepted else '')
        where = _written_at(cfg, key)
    # Only the innermost config adds its place, which is the nearest to the error.
    where = '' if is_placed(error) else where
    raise_with_context(_mark_placed(error, cfg), f'{name}: ', f'{detail}{where}', note=f'while building {name}{where}')


def _mark_placed(error: _Error, cfg: Any) -> _Error:
    """``error``, marked if the place of ``cfg`` is known and therefore in its message."""
    if _written_at(cfg):
        setattr(error, _PLACED, True)
    return error
