"""A stand-in for torchvision, which timm imports: torchvision's wheels do not load with the torch that tests have.

timm uses it for pictures from files and for detection. To build a network, the names suffice.
"""

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class Name(type):
    """The type of a class whose attributes are classes of the same kind."""

    def __getattr__(cls, name):
        if name.startswith('__'):
            raise AttributeError(name)
        return Name(name, (), {})


class Names(ModuleType):
    """A module in which every name is an empty class."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith('__'):
            raise AttributeError(name)
        return Name(name, (), {})


class Finder(MetaPathFinder, Loader):
    """Finds each module of torchvision."""

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=True) if name.partition('.')[0] == 'torchvision' else None

    def create_module(self, spec):
        return Names(spec.name)

    def exec_module(self, module):
        """Nothing to execute."""


def install(monkeypatch):
    """For one test, ``import torchvision`` finds the stand-in; returns False, and leaves it, if the real one loads."""
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError):  # RuntimeError: its operators are those of another torch
        pass
    else:
        return False
    monkeypatch.setattr(sys, 'meta_path', [*sys.meta_path, Finder()])
    for name in [name for name in sys.modules if name.partition('.')[0] == 'torchvision']:
        monkeypatch.delitem(sys.modules, name)
    return True
