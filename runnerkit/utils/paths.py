"""Files and folders: finding, creating, linking."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

StrPath = str | os.PathLike[str]


def is_filepath(x: object) -> bool:
    """Whether ``x`` is a string or a `pathlib.Path`."""
    return isinstance(x, (str, Path))


def fopen(filepath: StrPath, *args: Any, **kwargs: Any) -> IO[Any]:
    """`open` for strings and paths only; file descriptors are refused."""
    if not is_filepath(filepath):
        raise ValueError(f'`filepath` should be a string or a Path, but got {type(filepath)}: {filepath!r}')
    return open(filepath, *args, **kwargs)


def check_file_exist(filename: StrPath, msg_tmpl: str = 'file "{}" does not exist') -> None:
    """Raise FileNotFoundError with ``msg_tmpl.format(filename)`` unless it is a file."""
    if not os.path.isfile(filename):
        raise FileNotFoundError(msg_tmpl.format(filename))


def mkdir_or_exist(dir_name: StrPath, mode: int = 0o777) -> None:
    """Create a folder and its parents if they do not exist; an empty name means the current folder."""
    if str(dir_name):
        os.makedirs(os.path.expanduser(dir_name), mode=mode, exist_ok=True)


def symlink(src: StrPath, dst: StrPath, overwrite: bool = True, **kwargs: Any) -> None:
    """Make ``dst`` a symbolic link to ``src``; with ``overwrite``, an existing file is replaced."""
    if overwrite and os.path.lexists(dst):
        os.remove(dst)
    os.symlink(src, dst, **kwargs)


def scandir(
    dir_path: StrPath, suffix: str | tuple[str, ...] | None = None, recursive: bool = False, case_sensitive: bool = True
) -> Iterator[str]:
    """The files of a folder, except hidden ones, as paths relative to it, in no particular order.

    Args:
        dir_path: the folder.
        suffix: the ending, or endings, of the names; None for all files.
        recursive: also search subfolders, including hidden ones.
        case_sensitive: whether ``'.PY'`` differs from ``'.py'``.

    Raises:
        TypeError: ``dir_path`` or ``suffix`` is of another type.
    """
    if not is_filepath(dir_path):
        raise TypeError(f'"dir_path" must be a string or Path object, but got {type(dir_path)}')
    if suffix is not None and not isinstance(suffix, (str, tuple)):
        raise TypeError(f'"suffix" must be a string or tuple of strings, but got {type(suffix)}')
    if suffix is not None and not case_sensitive:
        suffix = suffix.lower() if isinstance(suffix, str) else tuple(each.lower() for each in suffix)
    return _scan(str(dir_path), '', suffix, recursive, case_sensitive)


def _scan(
    root: str, inside: str, suffix: str | tuple[str, ...] | None, recursive: bool, case_sensitive: bool
) -> Iterator[str]:
    for entry in os.scandir(os.path.join(root, inside)):
        path = os.path.join(inside, entry.name)
        if entry.is_file():
            name = path if case_sensitive else path.lower()
            if not entry.name.startswith('.') and (suffix is None or name.endswith(suffix)):
                yield path
        elif recursive and entry.is_dir():
            yield from _scan(root, path, suffix, recursive, case_sensitive)


def find_vcs_root(path: StrPath, markers: tuple[str, ...] = ('.git',)) -> str | None:
    """The root of the repository: the nearest folder, from ``path`` upwards, with one of ``markers``; else None."""
    given = os.path.abspath(os.path.expanduser(path))
    folder = Path(os.path.dirname(given) if os.path.isfile(given) else given)
    for each in (folder, *folder.parents):
        if any((each / marker).exists() for marker in markers):
            return str(each)
    return None
