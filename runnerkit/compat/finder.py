"""Old module paths as other names of the modules that are there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

from runnerkit.compat.aliases import ALIASES, homes_of

PACKAGE = 'runnerkit'

#: What aliases lie below.
PARENTS = {alias.rpartition('.')[0] for alias in ALIASES}


class AliasFinder(MetaPathFinder):
    """Answers imports below ``runnerkit`` of paths that are aliases.

    It has to be asked before Python's own finders: those would look into the folder of the package that an alias
    shows, and load its modules a second time under another name.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The way to load an alias; None for any other module."""
        top, _, inner = fullname.partition('.')
        if top != PACKAGE:
            return None
        homes = homes_of(inner)
        if homes:
            return spec_from_loader(fullname, AliasLoader(homes))
        return with_modules_below(PathFinder.find_spec(fullname, path)) if inner in PARENTS else None


def with_modules_below(spec: ModuleSpec | None) -> ModuleSpec | None:
    """``spec``, of a package also where it is only a module: Python imports nothing below a module."""
    if spec is not None and spec.submodule_search_locations is None:
        spec.submodule_search_locations = []
    return spec


class AliasLoader(Loader):
    """Gives the one module behind an alias itself, several as a `Facade`."""

    def __init__(self, homes: Sequence[str]) -> None:
        self.homes = homes

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import what is behind the alias."""
        modules = [import_module(f'{PACKAGE}.{home}') for home in self.homes]
        module = modules[0] if len(modules) == 1 else Facade(spec.name, modules)
        if len(modules) == 1:
            _mirror(module.__name__, spec.name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Undo what importing under another name has written into a module that knows who it is."""
        if self._spec is not None:
            module.__spec__ = self._spec


def _mirror(package: str, alias: str) -> None:
    """Let what is loaded below ``package`` count as loaded below ``alias``, too.

    Importing a module writes it into its parent under its name. For one that has been loaded before, that would put it
    in the place of a function of that name that the package has taken from it (``parallel.collate``).
    """
    for name, module in list(sys.modules.items()):
        if name.startswith(f'{package}.'):
            sys.modules.setdefault(alias + name[len(package) :], module)


class Facade(ModuleType):
    """A module that shows the names of several, earlier ones first. Setting a name (a test's patch) sets it there."""

    def __init__(self, name: str, homes: Sequence[ModuleType]) -> None:
        super().__init__(name, f'The names of {", ".join(home.__name__ for home in homes)}.')
        for home in reversed(homes):
            vars(self).update({key: value for key, value in vars(home).items() if not key.startswith('__')})
        vars(self).update(__path__=[], _homes=homes)

    def __setattr__(self, name: str, value: Any) -> None:
        for home in vars(self).get('_homes', ()):
            if name in vars(home) and not name.startswith('__'):
                setattr(home, name, value)
        super().__setattr__(name, value)


def install() -> None:
    """Put the finder before all others; once."""
    if not any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, AliasFinder())
