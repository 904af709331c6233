"""Imports Python files that belong to no package, such as those that a config names.

A folder becomes the package ``runnerkit.utils.user_files.<encoded absolute path>``, and a file in it a module of that
package. The module's name contains the path, and importing it imports this module first, which installs the finder. So
objects defined in such a file can be unpickled in a new process, such as a spawned loader worker.

``sys.path`` is not changed. A file imports its neighbours as in any package: ``from .transforms import Flip``.
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

#: An empty search path makes this module a package whose submodules only the finder finds.
__path__: list[str] = []


def module_of_file(file: str) -> ModuleType:
    """The module of a Python file; it is loaded at the first call and then reused.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: its name is not valid for a module.
        Exception: an error raised by the file while it runs.
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
    """The module name for the file at the absolute ``path``."""
    return f'{__name__}.{_encode(str(path.parent))}.{path.stem}'


def file_of_module(name: str) -> str | None:
    """The file of a module that `module_of_file` created; None for other modules."""
    if not name.startswith(__name__ + '.'):
        return None
    folder, _, stem = name[len(__name__) + 1 :].partition('.')
    return str(Path(_decode(folder), *stem.split('.')).with_suffix('.py'))


class _Finder:
    """Finds folders as packages and their files as modules; a file is preferred to a folder of the same name."""

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
