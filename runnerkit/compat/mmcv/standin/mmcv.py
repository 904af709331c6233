"""MMCV 1.x's root: the names of runnerkit's ``utils`` and ``fileio``, and those of the installed mmcv's ``image``,
``video``, ``arraymisc`` and ``visualization``, each imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from runnerkit import fileio, utils
from runnerkit.compat import install
from runnerkit.compat.mmcv.mmcv_finder import installed_folders
from runnerkit.compat.mmcv.mmcv_version import __version__, parse_version_info, version_info
from runnerkit.compat.mmcv.old_names import INSTALLED, PACKAGES

__all__ = ['__version__', 'parse_version_info', 'version_info']

IS_RUNNERKIT = True
install()  # a spawned worker imports this file through its parent's sys.path, and install was not called there
__path__ = installed_folders()


def __getattr__(name: str) -> Any:
    if name in PACKAGES:
        return import_module(f'mmcv.{name}')
    if name in INSTALLED:
        return getattr(import_module(f'mmcv.{INSTALLED[name]}'), name)
    for package in (utils, fileio):
        if hasattr(package, name) and not isinstance(getattr(package, name), ModuleType):
            return getattr(package, name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def __dir__() -> list[str]:
    return sorted({*globals(), *utils.__all__, *fileio.__all__, *INSTALLED, *PACKAGES})
