"""Opening files by path or URL: fsspec opens URLs (``s3://…``, ``memory://…``), Python everything else."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import IO, Any

from runnerkit.utils.logging import printable

PathOrUrl = str | os.PathLike[str]

#: In bytes. Most systems allow 255, and temporary names are longer than the final ones.
_LONGEST_NAME = 200

_SEPARATORS = set('/\\:' if os.name == 'nt' else '/\\')

#: Names that Windows reserves for devices in every folder.
_DEVICE = re.compile(r'(con|prn|aux|nul|com\d|lpt\d)( *\..*)?', re.IGNORECASE)


def is_url(path: PathOrUrl) -> bool:
    """Whether ``path`` has a scheme, as in ``s3://bucket/key``."""
    return '://' in os.fspath(path)


def local_path(path: PathOrUrl) -> str:
    """The path in a ``file://`` URL; anything else is returned unchanged."""
    path = os.fspath(path)
    scheme, found, rest = path.partition('://')
    return rest if found and scheme in ('file', 'local') else path


def local_target(path: PathOrUrl) -> Path:
    """The local path of a file that is to be written."""
    if is_url(local_path(path)):
        raise ValueError(f'{printable(path)} is a URL: give a local path, and upload the file from there')
    return Path(local_path(path)).expanduser()


def lies_in(path: PathOrUrl, folder: PathOrUrl) -> bool:
    """Whether ``path`` names a file directly in ``folder``; nothing is opened. Use it for paths that a file names."""
    path, folder = local_path(path), local_path(folder)
    parent, _, name = path.rpartition('/')
    if name in ('', '.', '..') or '\0' in path:
        return False
    if is_url(path) or is_url(folder):
        return parent == folder.rstrip('/')
    return os.path.realpath(os.path.dirname(path)) == os.path.realpath(folder)


def plain_file_name(name: str) -> str:
    """Check that ``name`` is a plain file name on every system, and return it. Use it for names from servers and files,
    which must not lead out of a folder.
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
    """Open a path or URL, as a context manager. Text is UTF-8 unless ``encoding`` is given."""
    if 'b' not in mode:
        kwargs.setdefault('encoding', 'utf-8')
    if not is_url(path):
        return open(path, mode, **kwargs)
    import fsspec

    opened: IO[Any] = fsspec.open(os.fspath(path), mode, **kwargs).open()
    return opened


def exists(path: PathOrUrl) -> bool:
    """Whether a file or folder exists at a path or URL."""
    if not is_url(path):
        return os.path.exists(path)
    import fsspec

    filesystem, inner = fsspec.core.url_to_fs(os.fspath(path))
    return bool(filesystem.exists(inner))


def join(path: PathOrUrl, *parts: str) -> str:
    """Join ``parts`` to a path or URL."""
    if not is_url(path):
        return os.path.join(path, *parts)
    scheme, _, start = os.fspath(path).partition('://')
    inner = '/'.join([start.rstrip('/'), *(part.strip('/') for part in parts)])
    return f'{scheme}://{inner}' if start else f'{scheme}://{inner.lstrip("/")}'


def shown(path: str | os.PathLike[str]) -> str:
    """``path`` as the user would type it: relative if it is below the current folder."""
    path = os.fspath(path)
    below = not is_url(path) and os.path.abspath(path).startswith(os.getcwd() + os.sep)
    return printable(os.path.relpath(path) if below else path)
