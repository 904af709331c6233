"""Imports Python files that belong to no package, such as those that a config names.

A folder becomes the package ``runnerkit.utils.user_files.<encoded absolute path>``, and a file in it a module of that
package. The module's name contains the path, and importing it imports this module first, which installs the finder. So
objects defined in such a file can be unpickled in a new process, such as a spawned loader worker.

A file is executed once, or its classes would be registered twice: if it was imported in another way before (``import
nets`` in a script, or as the script itself), that module is used; so is the module of an identical file elsewhere, such
as the original of a copy in a work dir. A later ``import nets`` also finds the module.

A script that calls `runnerkit.train` may be such a file, too, since its classes are what it has trained. It is executed
up to that call: it must not train again because another file needs one of its classes (`end_import`).

``sys.path`` is not changed. A file imports its neighbours as in any package: ``from .transforms import Flip``.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from functools import cache, lru_cache
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any

from runnerkit.utils.suggest import suggestion

#: An empty search path makes this module a package whose submodules only the finder finds.
__path__: list[str] = []

#: The files that were imported here: the module's name, and the texts of the file and its neighbours when it was.
_imported: dict[Path, tuple[str, list[bytes]]] = {}
_stems: set[str] = set()  # of these files: every import of the process asks for one


#: Whether a file is being executed because it is imported here.
_is_importing: ContextVar[bool] = ContextVar('is_importing', default=False)


def module_of_file(file: str) -> ModuleType:
    """The module of a Python file; it is loaded at the first call and then reused."""
    path = Path(file).expanduser().resolve()
    if path.suffix != '.py' or '.' in path.stem:
        raise ValueError(f'{file!r} must be a .py file with no other dot in its name, to be imported')
    if not path.is_file():
        near = suggestion(path.name, [each.name for each in path.parent.glob('*.py')])
        places = f', neither in the working directory {Path.cwd()} nor in the folder of a config file that names it'
        raise FileNotFoundError(f'there is no file {file!r}{"" if os.path.isabs(file) else places}{near}')
    name = name_of_file(path)
    if name in sys.modules and path in _imported and _texts(path) != _imported[path][1]:
        warnings.warn(
            f'{file} has changed since this process imported it, and the old version is used: start a new process '
            'for the new one',
            stacklevel=2,
        )
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and path.with_name(f'{error.name.partition(".")[0]}.py').is_file():
            advice = f'{path} imports {error.name!r}, a file in the same folder: write `from .{error.name} import …`'
            raise ModuleNotFoundError(advice, name=error.name) from error
        raise


def end_import() -> None:
    """End the execution of the file that is being imported here, if one is; what it has defined so far is its module.

    Called where a training begins.
    """
    if _is_importing.get():
        raise _ImportEnds


class _ImportEnds(BaseException):
    """Not an error, and so not for the handlers in the user's file."""


class _FileLoader(SourceFileLoader):
    """Executes a file up to where it calls `end_import`. It neither reads nor writes a ``__pycache__``: the
    folder may be the work dir of a run, and a seal is about the text."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        raise OSError('no compiled file is wanted')

    def exec_module(self, module: ModuleType) -> None:
        token = _is_importing.set(True)
        try:
            super().exec_module(module)
        except _ImportEnds as end:
            codes = [frame.f_code for frame, _ in walk_tb(end.__traceback__)]
            others = [
                code.co_filename for code in codes if code.co_name == '<module>' and code.co_filename != self.path
            ]
            if others:
                raise ImportError(
                    f'{self.path} cannot be imported: it imports {others[-1]}, which trains on import. Move the '
                    "training there below if __name__ == '__main__':",
                    path=others[-1],
                ) from None
        finally:
            _is_importing.reset(token)


def with_neighbours(path: Path) -> list[Path]:
    """The file at the absolute ``path``, and the files of its folder that it imports, directly or through others."""
    found = [path]
    for file in found:  # which grows meanwhile
        neighbours = [file.with_name(f'{name}.py') for name in _names_of_neighbours(file.read_bytes())]
        found += [each for each in neighbours if each not in found and each.is_file()]
    return found


@lru_cache(maxsize=256)  # a start asks several times
def _names_of_neighbours(text: bytes) -> list[str]:
    """The modules that a file of that text imports from its own folder; none if that is no Python."""
    try:
        nodes = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.ImportFrom) and each.level == 1]
    except SyntaxError:
        return []  # its import tells
    return [
        name
        for node in nodes
        for name in ([node.module.partition('.')[0]] if node.module else [alias.name for alias in node.names])
    ]


def name_of_file(path: Path) -> str:
    """The module name for the file at the absolute ``path``."""
    folder = re.sub(r'[^a-zA-Z0-9]', lambda found: f'_{ord(found[0]):x}_', str(path.parent))
    return f'{__name__}.{folder}.{path.stem}'


def file_of_module(name: str) -> str | None:
    """The file of a module that `module_of_file` created; None for other modules."""
    if not name.startswith(__name__ + '.'):
        return None
    folder, _, stem = name[len(__name__) + 1 :].partition('.')
    return str(Path(_decode(folder), *stem.split('.')).with_suffix('.py'))


@cache
def is_ours(module: str) -> bool:
    """Whether the module of that name is part of runnerkit; a user's file, whose module is below this one, is not."""
    return module.startswith('runnerkit.') and not module.startswith(__name__ + '.')


def _imported_otherwise(path: Path, texts: list[bytes]) -> ModuleType | None:
    """The module that was imported from ``path``, or from an identical file elsewhere, but not here."""
    twin = None
    for module in list(sys.modules.values()):
        file = getattr(module, '__dict__', {}).get('__file__')  # not by getattr, which loads lazy modules
        if not isinstance(file, str) or os.path.basename(file) != path.name:
            continue
        other = Path(file).resolve()
        if other == path:
            return module
        if other in _imported or not other.is_file() or other.read_bytes() != texts[0]:
            continue  # before its neighbours are looked for: those of a file in a large package are many
        if _texts(other) == texts:
            twin = module
    return twin


def _texts(path: Path) -> list[bytes]:
    """The texts of the file and of its neighbours."""
    return [each.read_bytes() for each in with_neighbours(path)]


class _Finder:
    """Finds folders as packages and their files as modules; a file is preferred to a folder of the same name.

    Also finds the module of a file for an ordinary import of that file.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith(__name__ + '.'):
            return _spec_of_imported(name, path)
        folder, _, stem = name[len(__name__) + 1 :].partition('.')
        directory = Path(_decode(folder))
        if not stem:
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [str(directory)]
            return spec if directory.is_dir() else None
        file = directory / f'{stem}.py'
        return _spec_of_file(name, file) if '.' not in stem and file.is_file() else None


def _spec_of_file(name: str, file: Path) -> ModuleSpec | None:
    texts = _texts(file)
    # Else another file with the same name and text, whose neighbours are also the same.
    twins = (name for other, (name, its) in _imported.items() if other.name == file.name and its == texts)
    known = _imported_otherwise(file, texts) or next((sys.modules[name] for name in twins if name in sys.modules), None)
    _imported[file] = (name, texts)
    _stems.add(file.stem)
    if known is not None:
        return ModuleSpec(name, _Known(known), origin=str(file))
    return spec_from_file_location(name, file, loader=_FileLoader(name, str(file)))


def _spec_of_imported(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    if name.rpartition('.')[2] not in _stems:
        return None
    spec = PathFinder.find_spec(name, path)
    known = _imported.get(Path(spec.origin).resolve()) if spec is not None and spec.origin else None
    if known is None or known[0] not in sys.modules:
        return None
    return ModuleSpec(name, _Known(sys.modules[known[0]]), origin=spec.origin)  # type: ignore[union-attr]


class _Known(Loader):
    """Loads nothing: the module is there."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # which the import has replaced


def _decode(name: str) -> str:
    return re.sub(r'_([0-9a-f]+)_', lambda found: chr(int(found[1], 16)), name)


sys.meta_path.insert(0, _Finder)
