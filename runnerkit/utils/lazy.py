"""Names of a package that are imported at their first use."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

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
