"""Makes MMCV's module paths aliases of our modules, and adds MMCV's names to them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

from runnerkit.compat.mmcv.aliases import ALIASES, VEGA_ALIASES, homes_of
from runnerkit.compat.mmcv.old_names import MODULES, OLD_METHODS, OLD_NAMES
from runnerkit.utils.lazy import homes_in

PACKAGE = 'runnerkit'

#: The parents of aliases, by their own paths.
_PARENT_PATHS = {alias.rpartition('.')[0] for alias in (*ALIASES, *VEGA_ALIASES)}
PARENTS = {home for path in _PARENT_PATHS for home in homes_of(path) or [path]}


class AliasFinder(MetaPathFinder):
    """Finds modules below ``runnerkit`` whose paths are aliases.

    It must come before Python's own finders, which would search the folder of the aliased package and load its modules
    a second time under another name.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of an alias; None for any other module."""
        top, _, inner = fullname.partition('.')
        if top != PACKAGE:
            return None
        homes = homes_of(inner)
        if homes:
            return spec_from_loader(fullname, AliasLoader(homes))
        if inner not in PARENTS and inner not in MODULES:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = partial(_run_with_old_names, spec.loader.exec_module)  # type: ignore[method-assign]
        return spec


def _run_with_old_names(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    execute(module)
    _add_old_names(module)


def _add_old_names(module: ModuleType) -> None:
    """Add the names that code written for MMCV uses to a module and its classes; let it have aliases as submodules."""
    inner, inside = module.__name__.partition('.')[2], vars(module)
    names = OLD_NAMES.get(inner, {})
    if '__path__' in inside:
        homes_in(module.__name__).update({name: _absolute(place.partition(':')[0]) for name, place in names.items()})
    elif names:
        inside['__getattr__'] = partial(_old_name, module.__name__, names)
    if '__all__' in inside:
        inside['__all__'] += list(names)
    if inner in PARENTS:
        inside.setdefault('__path__', [])  # Python imports submodules of packages only
    for owner, methods in OLD_METHODS.items():
        home, _, cls = owner.partition(':')
        if home == inner:
            for name, place in methods.items():
                setattr(getattr(module, cls), name, staticmethod(_at(place)))


def _old_name(module: str, places: dict[str, str], name: str) -> Any:
    if name not in places:
        raise AttributeError(f'module {module!r} has no attribute {name!r}')
    return _at(places[name])


def _at(place: str) -> Any:
    path, _, name = place.partition(':')
    module = import_module(_absolute(path))
    return getattr(module, name) if name else module


def _absolute(path: str) -> str:
    return f'{PACKAGE}{path}' if path.startswith('.') else path


class AliasLoader(Loader):
    """Loads an alias of one module as that module, of several modules as a `Facade`."""

    def __init__(self, homes: Sequence[str]) -> None:
        self.homes = homes

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the modules behind the alias."""
        modules = [import_module(f'{PACKAGE}.{home}') for home in self.homes]
        module = modules[0] if len(modules) == 1 else Facade(spec.name, modules)
        if len(modules) == 1:
            _mirror(module.__name__, spec.name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec, which the import under another name has overwritten."""
        if self._spec is not None:
            module.__spec__ = self._spec


def _mirror(package: str, alias: str) -> None:
    """Also register the modules loaded below ``package`` below ``alias``.

    An import sets the module as an attribute of its parent. For a module that is loaded already, this would overwrite a
    function of the same name that the package exports (``parallel.collate``).
    """
    for name, module in list(sys.modules.items()):
        if name.startswith(f'{package}.'):
            sys.modules.setdefault(alias + name[len(package) :], module)


class Facade(ModuleType):
    """A module with the names of several modules; earlier ones win. Setting a name (a test's patch) sets it there."""

    def __init__(self, name: str, homes: Sequence[ModuleType]) -> None:
        super().__init__(name, f'The names of {", ".join(home.__name__ for home in homes)}.')
        for home in reversed(homes):
            vars(self).update({key: value for key, value in vars(home).items() if not key.startswith('__')})
        vars(self).update(__path__=[], _homes=homes)

    def __getattr__(self, name: str) -> Any:
        """A name that its module imports at first use."""
        for home in vars(self).get('_homes', ()):
            if not name.startswith('__') and hasattr(home, name):
                return getattr(home, name)
        raise AttributeError(f'module {self.__name__!r} has no attribute {name!r}')

    def __setattr__(self, name: str, value: Any) -> None:
        for home in vars(self).get('_homes', ()):
            if name in vars(home) and not name.startswith('__'):
                setattr(home, name, value)
        super().__setattr__(name, value)


def install() -> AliasFinder:
    """Put the finder before all others, once, and add the old names to the modules that are imported already."""
    present = [finder for finder in sys.meta_path if isinstance(finder, AliasFinder)]
    if present:
        return present[0]
    finder = AliasFinder()
    sys.meta_path.insert(0, finder)
    for inner in (*PARENTS, *(inner for inner in MODULES if inner not in PARENTS)):
        module = sys.modules.get(f'{PACKAGE}.{inner}')
        if module is not None:
            _add_old_names(module)
    homes_in(PACKAGE).update(homes_in(f'{PACKAGE}.utils'))  # as in MMCV
    return finder
