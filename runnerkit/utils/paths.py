"""Files and folders: listing and creating."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

StrPath = str | os.PathLike[str]


def is_filepath(x: object) -> bool:
    """Whether ``x`` is a string or a `pathlib.Path`."""
    return isinstance(x, (str, Path))


def mkdir_or_exist(dir_name: StrPath, mode: int = 0o777) -> None:
    """Create a folder and its parents if they do not exist; an empty name means the current folder."""
    if str(dir_name):
        os.makedirs(os.path.expanduser(dir_name), mode=mode, exist_ok=True)


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
