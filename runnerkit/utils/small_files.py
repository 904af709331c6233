"""Files in folders that another user may have prepared: their places may be taken by a link, a pipe, a device …"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import IO, Any

#: The most bytes of such a file.
MOST = 64 << 20


def open_regular(path: str | os.PathLike[str]) -> int:
    """A descriptor for reading a regular file: opening a pipe would wait for its writer, and a device may not end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f'{os.fspath(path)} is not a regular file')
    return descriptor


def open_plain(path: str | os.PathLike[str]) -> int:
    """A descriptor for reading and appending to a plain file, which is created if needed. Another user may have
    prepared its folder, so a link is not followed. Programs started later do not inherit the descriptor.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        raise _not_plain(path) if error.errno == errno.ELOOP else error from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise _not_plain(path, 'a link, which is not followed' if stat.S_ISREG(status.st_mode) else 'not a plain file')
    return descriptor


def open_own(path: str | os.PathLike[str], mode: str = 'a') -> IO[Any]:
    """Open a file of a work dir for writing, see `open_plain`. Text is UTF-8."""
    descriptor = open_plain(path)
    if mode[0] == 'w':
        os.truncate(descriptor, 0)
    return open(descriptor, mode.replace('w', 'a'), encoding=None if 'b' in mode else 'utf-8')


def own_folder(path: str | os.PathLike[str]) -> Path:
    """A folder in a work dir, created if needed."""
    folder = Path(refuse_link(path))
    folder.mkdir(exist_ok=True)
    return folder


def refuse_link(path: str | os.PathLike[str]) -> str:
    """The ``path`` of a folder in a work dir that another library writes to."""
    if os.path.islink(path):
        raise _not_plain(path)
    return os.fspath(path)


def _not_plain(path: str | os.PathLike[str], what: str = 'a link, which is not followed') -> OSError:
    return OSError(errno.ELOOP, f'{os.path.basename(path)} is {what}: delete it', os.fspath(path))


def read_small(path: str | os.PathLike[str], most: int = MOST) -> bytes:
    """The content of a regular file."""
    with open(open_regular(path), 'rb') as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(f'{os.fspath(path)} has more than {most} bytes')
    return content


def read_json(path: str | os.PathLike[str], most: int = MOST) -> Any:
    """The JSON value in a regular file."""
    try:
        return json.loads(read_small(path, most))
    except RecursionError:
        raise ValueError(f'{os.fspath(path)} is nested too deeply') from None
