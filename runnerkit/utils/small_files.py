"""Reading small files whose place anything else may have taken: a pipe, a device, a folder, a text without end."""

from __future__ import annotations

import json
import os
import stat
from typing import Any

#: The most bytes of such a file.
MOST = 64 << 20


def open_regular(path: str | os.PathLike[str]) -> int:
    """A descriptor for reading a regular file. Opening a pipe would wait for its writer, and a device may have no end.

    Raises:
        OSError: it cannot be opened, or is something else.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f'{os.fspath(path)} is not a regular file')
    return descriptor


def read_small(path: str | os.PathLike[str], most: int = MOST) -> bytes:
    """The content of a regular file.

    Args:
        path: the file.
        most: bytes that it may have.

    Raises:
        OSError: it cannot be read, is not a regular file, or is larger.
    """
    with open(open_regular(path), 'rb') as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(f'{os.fspath(path)} has more than {most} bytes')
    return content


def read_json(path: str | os.PathLike[str], most: int = MOST) -> Any:
    """The JSON value in a regular file.

    Args:
        path: the file.
        most: bytes that it may have.

    Raises:
        OSError: see `read_small`.
        ValueError: it holds no JSON, or one that is nested too deeply.
    """
    try:
        return json.loads(read_small(path, most))
    except RecursionError:
        raise ValueError(f'{os.fspath(path)} is nested too deeply') from None
