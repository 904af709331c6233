"""Modules for Python files that belong to no package: the classes that a config names by file.

A folder becomes the package ``runnerkit.utils.user_files.<its absolute path, encoded>``, a file in it a module of that
package. The name says all that is needed to find the file, and importing it imports this module first, which puts the
finder in place: so what such a file defines can be unpickled in a process that has only just been started, such as a
spawned loader worker.

``sys.path`` stays as it is. A file imports its neighbours as in any package: ``from .transforms import Flip``.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

#: An empty search path makes this module a package, below which only the finder finds something.
__path__: list[str] = []


def module_of_file(file: str) -> ModuleType:
    """The module for a Python file, loaded at the first call and the same object ever after.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: its name is not that of a Python module.
        Exception: whatever the file raises while it runs.
    """
    path = Path(file).expanduser().resolve()
    if path.suffix != '.py' or '.' in path.stem:
        raise ValueError(f'{file!r} must be a .py file with no other dot in its name, to be imported')
    if not path.is_file():
        raise FileNotFoundError(
            f'there is no file {file!r} (looked for from {Path.cwd()}); a config names a file that lies beside it as '
            f"'{{{{ fileDirname }}}}/{path.name}:Name'"
        )
    try:
        return importlib.import_module(name_of_file(path))
    except ModuleNotFoundError as error:
        if error.name and path.with_name(f'{error.name.partition(".")[0]}.py').is_file():
            advice = f'{path} imports {error.name!r}, which lies beside it: write `from .{error.name} import …`'
            raise ModuleNotFoundError(advice, name=error.name) from error
        raise


def name_of_file(path: Path) -> str:
    """The name of the module that the file at the absolute ``path`` is, or would be."""
    return f'{__name__}.{_encode(str(path.parent))}.{path.stem}'


def file_of_module(name: str) -> str | None:
    """The path of the file behind a module that `module_of_file` made; None for any other module name."""
    if not name.startswith(__name__ + '.'):
        return None
    folder, _, stem = name[len(__name__) + 1 :].partition('.')
    return str(Path(_decode(folder), *stem.split('.')).with_suffix('.py'))


class _Finder:
    """Finds the folders as packages, and the files in them before a folder of the same name."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith(__name__ + '.'):
            return None
        folder, _, stem = name[len(__name__) + 1 :].partition('.')
        directory = Path(_decode(folder))
        if not stem:
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [str(directory)]
            return spec if directory.is_dir() else None
        file = directory / f'{stem}.py'
        return spec_from_file_location(name, file) if '.' not in stem and file.is_file() else None


def _encode(path: str) -> str:
    return re.sub(r'[^a-zA-Z0-9]', lambda found: f'_{ord(found[0]):x}_', path)


def _decode(name: str) -> str:
    return re.sub(r'_([0-9a-f]+)_', lambda found: chr(int(found[1], 16)), name)


sys.meta_path.insert(0, _Finder)
