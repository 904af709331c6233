"""Imports of ``mmcv`` and its modules: ours if we have them, else those of the installed mmcv."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from runnerkit.compat.mmcv.aliases import MMCV_ALIASES
from runnerkit.compat.mmcv.finder import PACKAGE, AliasLoader

#: The folder whose only module is our ``mmcv``. It is put on ``sys.path``, because spawned worker processes inherit the
#: path of their parent, and nothing else.
STANDIN = Path(__file__).resolve().parent / 'standin'

#: Packages of MMCV that runnerkit replaces, whole.
OURS = ('device', 'engine', 'fileio', 'parallel', 'runner', 'utils')

#: The other packages of MMCV 1.x and 2.x.
THEIRS = ('arraymisc', 'cnn', 'image', 'model_zoo', 'onnx', 'ops', 'tensorrt', 'transforms', 'video', 'visualization')

HOW_TO_INSTALL = 'MMCV_WITH_OPS=0 pip install --no-build-isolation --no-deps mmcv==1.7.2'


def install() -> None:
    """Let ``import mmcv`` and imports below it return runnerkit's modules, in this process and in its workers.

    Raises:
        RuntimeError: another mmcv is imported already.
    """
    present = sys.modules.get('mmcv')
    if present is not None and not is_standin(present):
        raise RuntimeError(
            f'mmcv was imported from {getattr(present, "__file__", None)} before runnerkit.compat.install() was '
            f'called. Call it before the first import of mmcv, or of a package that imports it; or start the script '
            f'with python -m runnerkit.compat'
        )
    if not any(isinstance(finder, MmcvFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, MmcvFinder())
    if str(STANDIN) not in sys.path:
        sys.path.insert(1, str(STANDIN))  # the first entry is the script's own folder, as scripts know it
    import_module('mmcv')


def is_standin(module: ModuleType) -> bool:
    """Whether a module is our ``mmcv``."""
    file = getattr(module, '__file__', None)
    return file is not None and Path(file).resolve().parent == STANDIN


def installed_folders() -> list[str]:
    """Return the folders of the installed mmcv; empty if there is none."""
    path = [entry for entry in sys.path if entry != str(STANDIN)]
    for finder in sys.meta_path:
        spec = None if isinstance(finder, MmcvFinder) else finder.find_spec('mmcv', path)
        if spec is not None and spec.has_location and spec.submodule_search_locations:
            return list(spec.submodule_search_locations)
    return []


class MmcvFinder(MetaPathFinder):
    """Finds ``mmcv`` and its modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module of MMCV.

        Raises:
            ModuleNotFoundError: only an installed mmcv has this package, and there is none, or it lacks the package.
        """
        top, _, inner = fullname.partition('.')
        if top != 'mmcv':
            return None
        if not inner:
            return PathFinder.find_spec('mmcv', [str(STANDIN)])
        home = home_of(inner)
        if home:
            return spec_from_loader(fullname, AliasLoader([home]))
        spec = PathFinder.find_spec(fullname, path)
        if spec is None and inner in THEIRS:
            folders = installed_folders()
            place = f'the mmcv in {folders[0]} has none' if folders else 'no mmcv is installed'
            raise ModuleNotFoundError(
                f'{fullname} is not part of runnerkit, and {place}; to install it: {HOW_TO_INSTALL}', name=fullname
            )
        return spec


def home_of(inner: str) -> str | None:
    """Return our module for a module of MMCV, both relative to their package; None if we have none."""
    if inner in MMCV_ALIASES:
        return MMCV_ALIASES[inner]
    if inner.partition('.')[0] not in OURS:
        return None
    try:
        return inner if find_spec(f'{PACKAGE}.{inner}') else None
    except ModuleNotFoundError:
        return None
