"""What is imported at its first use: names of our packages, and what installed packages offer (entry points)."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: ``from module import names`` in the block ``if TYPE_CHECKING:`` of a package.
_IMPORT = re.compile(r'^    from (\S+) import (?:\(([^)]*)\)|(.+))$', re.MULTILINE)


@lru_cache
def homes_in(package: str) -> dict[str, str]:
    """The modules of the names that ``package`` imports in its block ``if TYPE_CHECKING:``, by name; of ``import *``,
    the names of that package."""
    loader = sys.modules[package].__spec__.loader  # type: ignore[union-attr]
    text = loader.get_source(package).partition('if TYPE_CHECKING:')[2]  # type: ignore[union-attr]
    homes: dict[str, str] = {}
    for module, several, one in _IMPORT.findall(text):
        if one.startswith('*'):
            names = import_module(module).__all__
            homes.update({name: homes_in(module).get(name, module) for name in names})
        else:
            names = (several or one).split(',')
            homes.update({name.rpartition(' as ')[2].strip(): module for name in names if name.strip()})
    return homes


def lazy_getattr(package: str) -> Callable[[str], Any]:
    """A ``__getattr__`` for ``package``: it imports the names of the block for type checkers, and submodules.

    Names that are modules as well must be imported by the package itself: importing such a module would replace them.
    """

    def get(name: str) -> Any:
        homes = homes_in(package)
        if name not in homes and not name.startswith('__'):
            try:
                return import_module(f'{package}.{name}')
            except ModuleNotFoundError as error:
                if error.name != f'{package}.{name}':
                    raise
        if name not in homes:  # nor is it one of the names that another system has added at that import
            raise AttributeError(f'module {package!r} has no attribute {name!r}')
        vars(sys.modules[package])[name] = value = getattr(import_module(homes[name]), name)
        return value

    return get


def loaded_class(place: str) -> Any:
    """The class at ``module:name`` for `isinstance` and `issubclass`, without importing its module: of a class whose
    module is not imported there are no objects."""
    module, _, name = place.partition(':')
    return getattr(sys.modules.get(module), name, ())


class _Late(ModuleType):
    """A module that is loaded when something is asked of it that it does not have."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)  # `importlib.util.find_spec` refuses a module without one

    def __getattr__(self, name: str) -> Any:
        if name.startswith('__') and name not in ('__all__', '__path__'):
            raise AttributeError(name)  # `inspect` looks at all modules, which is no use of this one
        self.withdraw()
        return getattr(import_module(self.__name__), name)

    def withdraw(self) -> None:
        """Let the next import find the real one."""
        if sys.modules.get(self.__name__) is self:
            sys.modules.pop(self.__name__, None)


@contextmanager
def loaded_late(module: str, **known: Any) -> Iterator[None]:
    """A context in which importing ``module`` does not load it before anything but ``known`` is asked of it.

    A program that imports it there by ``from package import module`` keeps an object that passes on all but ``known``.
    """
    late = _Late(module)
    vars(late).update(known)
    sys.modules.setdefault(module, late)
    try:
        yield
    finally:
        late.withdraw()


#: The class of the runners whose user writes the batch, for `loaded_class`.
EXPERIMENT = 'runnerkit.flow.experiment.experiment:Experiment'


class EntryPoints:
    """The classes and functions that installed packages offer under one group.

    The ``pyproject.toml`` of a package says ``[project.entry-points.'runnerkit.hooks']``, and below that
    ``GradientWatch = 'my_package.hooks:GradientWatch'``. The metadata is read at the first call, and again if a folder
    of ``sys.path`` has changed: a notebook may install a package. A module is imported when what it offers is loaded.
    Names that are no identifiers are ignored.

    Args:
        group: the group's name.
    """

    def __init__(self, group: str) -> None:
        self.group = group

    def names(self) -> list[str]:
        """All names, sorted. Nothing is imported."""
        return sorted({point.name for point in self._points()})

    def load(self, name: str) -> Any:
        """What is offered under ``name``, imported; None if nothing is."""
        if not name.isidentifier():  # a path, which reads no metadata
            return None
        points = {point.value: point for point in self._points() if point.name == name}
        if len(points) > 1:
            offers = ' and '.join(f'{value} ({_package(point)})' for value, point in points.items())
            raise ImportError(
                f'{name} is offered under {self.group} by several packages: {offers}. Name the class by its dotted path'
            )
        for value, point in points.items():
            try:
                return point.load()
            except (ImportError, AttributeError) as error:
                raise ImportError(
                    f'{_package(point)} offers {name} as {value}, which cannot be imported: {error}. '
                    f'Mend or reinstall {_package(point)}'
                ) from error
        return None

    def _points(self) -> Iterator[EntryPoint]:
        paths = (path or '.' for path in sys.path)
        folders = tuple((path, os.stat(path).st_mtime_ns) for path in paths if os.path.isdir(path))
        yield from (point for point in _all_points(folders).select(group=self.group) if point.name.isidentifier())


@lru_cache(maxsize=1)
def _all_points(folders: tuple[tuple[str, int], ...]) -> Any:
    """What all packages in ``folders`` offer; each has the time of its last change."""
    from importlib.metadata import entry_points  # 30 ms, which most commands do not need

    return entry_points()


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else 'an installed package'
