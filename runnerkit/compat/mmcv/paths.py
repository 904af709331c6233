"""MMCV's functions on paths that runnerkit itself does not use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

from runnerkit.utils.paths import StrPath, is_filepath


def fopen(filepath: StrPath, *args: Any, **kwargs: Any) -> IO[Any]:
    """`open` for strings and paths only; file descriptors are refused."""
    if not is_filepath(filepath):
        raise ValueError(f'`filepath` should be a string or a Path, but got {type(filepath)}: {filepath!r}')
    return open(filepath, *args, **kwargs)


def check_file_exist(filename: StrPath, msg_tmpl: str = 'file "{}" does not exist') -> None:
    """Raise FileNotFoundError with ``msg_tmpl.format(filename)`` unless it is a file."""
    if not os.path.isfile(filename):
        raise FileNotFoundError(msg_tmpl.format(filename))


def symlink(src: StrPath, dst: StrPath, overwrite: bool = True, **kwargs: Any) -> None:
    """Make ``dst`` a symbolic link to ``src``; with ``overwrite``, an existing file is replaced."""
    if overwrite and os.path.lexists(dst):
        os.remove(dst)
    os.symlink(src, dst, **kwargs)


def find_vcs_root(path: StrPath, markers: tuple[str, ...] = ('.git',)) -> str | None:
    """The root of the repository: the nearest folder, from ``path`` upwards, with one of ``markers``; else None."""
    given = os.path.abspath(os.path.expanduser(path))
    folder = Path(os.path.dirname(given) if os.path.isfile(given) else given)
    for each in (folder, *folder.parents):
        if any((each / marker).exists() for marker in markers):
            return str(each)
    return None
