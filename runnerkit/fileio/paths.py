"""Files by path or URL: a URL (``s3://…``, ``memory://…``) is opened by fsspec, anything else by Python."""

from __future__ import annotations

import os
import re
from types import ModuleType
from typing import IO, Any

PathOrUrl = str | os.PathLike[str]

#: In bytes; systems allow 255, and a file that is being written has a longer name.
_LONGEST_NAME = 200

_SEPARATORS = set('/\\:' if os.name == 'nt' else '/\\')

#: What Windows takes for a device in any folder.
_DEVICE = re.compile(r'(con|prn|aux|nul|com\d|lpt\d)( *\..*)?', re.IGNORECASE)


def is_url(path: PathOrUrl) -> bool:
    """Whether ``path`` names a file by its scheme, as in ``s3://bucket/key``."""
    return '://' in os.fspath(path)


def local_path(path: PathOrUrl) -> str:
    """The path on this machine that a ``file://`` URL stands for; anything else as it is."""
    path = os.fspath(path)
    scheme, found, rest = path.partition('://')
    return rest if found and scheme in ('file', 'local') else path


def plain_file_name(name: str) -> str:
    """``name``, if it names a file in a folder whatever the system: a name from a server, or from a file, must not lead
    out of the folder that it is put into.

    Raises:
        ValueError: it is empty or too long, has separators, control or other invisible characters, or is a name that a
            system gives a meaning of its own (``..``, ``NUL.pth``).
    """
    problem = None
    if not name or len(name.encode('utf-8', 'replace')) > _LONGEST_NAME:
        problem = f'is empty or longer than {_LONGEST_NAME} bytes'
    elif not name.isprintable() or set(name) & _SEPARATORS:
        problem = 'has separators or invisible characters'
    elif name.rstrip(' .') != name or name[0] == ' ' or _DEVICE.fullmatch(name):
        problem = 'means something else to an operating system'
    if problem is not None:
        raise ValueError(f'{name[:_LONGEST_NAME]!r} {problem}, so it cannot name a file')
    return name


def open_file(path: PathOrUrl, mode: str = 'r', **kwargs: Any) -> IO[Any]:
    """Open a path or URL, to be used in a ``with``. Text is UTF-8 unless ``encoding`` says otherwise."""
    if 'b' not in mode:
        kwargs.setdefault('encoding', 'utf-8')
    if not is_url(path):
        return open(path, mode, **kwargs)
    opened: IO[Any] = fsspec_module().open(os.fspath(path), mode, **kwargs).open()
    return opened


def exists(path: PathOrUrl) -> bool:
    """Whether there is a file or folder at a path or URL."""
    if not is_url(path):
        return os.path.exists(path)
    filesystem, inner = fsspec_module().core.url_to_fs(os.fspath(path))
    return bool(filesystem.exists(inner))


def join(path: PathOrUrl, *parts: str) -> str:
    """``path`` and what lies below it, in one path or URL."""
    if not is_url(path):
        return os.path.join(path, *parts)
    scheme, _, start = os.fspath(path).partition('://')
    inner = '/'.join([start.rstrip('/'), *(part.strip('/') for part in parts)])
    return f'{scheme}://{inner}' if start else f'{scheme}://{inner.lstrip("/")}'


def fsspec_module() -> ModuleType:
    """The library fsspec, imported.

    Raises:
        ImportError: it is not installed.
    """
    try:
        import fsspec
    except ImportError as error:
        raise ImportError('files by URL need fsspec: pip install fsspec') from error
    module: ModuleType = fsspec
    return module
