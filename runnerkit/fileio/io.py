"""`load` and `dump`: objects from and to files, in the format that the file's name tells."""

from __future__ import annotations

import os
from typing import IO, Any

from runnerkit.fileio.handlers import BaseFileHandler, file_handlers, handler_for, register_handler
from runnerkit.fileio.paths import is_url, open_file

__all__ = ['dump', 'file_handlers', 'load', 'register_handler']


def load(
    file: str | os.PathLike[str] | IO[Any],
    file_format: str | None = None,
    file_client_args: dict[str, Any] | None = None,
    **kwargs: Any,
) -> Any:
    """Read an object from a JSON, YAML or pickle file (or of a format that `register_handler` added).

    Reading a pickle runs whatever code is in it: read only your own.

    Args:
        file: a path, a URL or an open file.
        file_format: the format; by default the file's extension. An open file needs it.
        file_client_args: ``dict(backend='disk')``, or another that its path needs no backend for.
        **kwargs: go to the format's handler.

    Raises:
        TypeError: ``file`` is neither a path nor an open file, or the format is not known.
        ValueError: an open file came without a format.
    """
    check_backend(file_client_args)
    handler = _handler(file, file_format)
    if isinstance(file, str | os.PathLike):
        return handler.load_from_path(file, **kwargs)
    if not hasattr(file, 'read'):
        raise TypeError(f'"file" must be a filepath str or a file-object, but got {type(file)}')
    return handler.load_from_fileobj(file, **kwargs)


def dump(
    obj: Any,
    file: str | os.PathLike[str] | IO[Any] | None = None,
    file_format: str | None = None,
    file_client_args: dict[str, Any] | None = None,
    **kwargs: Any,
) -> Any:
    """Write an object to a JSON, YAML or pickle file, or give it back as text or bytes.

    Args:
        obj: what to write.
        file: a path, a URL or an open file; folders on a local path are made. None to get the text.
        file_format: the format; by default the file's extension. An open file, and no file, need it.
        file_client_args: as in `load`.
        **kwargs: go to the format's handler.

    Returns:
        None, or the text or bytes if ``file`` is None.
    """
    check_backend(file_client_args)
    handler = _handler(file, file_format)
    if file is None:
        return handler.dump_to_str(obj, **kwargs)
    if isinstance(file, str | os.PathLike):
        if not is_url(file):
            os.makedirs(os.path.dirname(os.path.abspath(file)), exist_ok=True)
        handler.dump_to_path(obj, file, **kwargs)
    elif hasattr(file, 'write'):
        handler.dump_to_fileobj(obj, file, **kwargs)
    else:
        raise TypeError(f'"file" must be a filename str or a file-object, but got {type(file)}')
    return None


def list_from_file(
    filename: str | os.PathLike[str],
    prefix: str = '',
    offset: int = 0,
    max_num: int = 0,
    encoding: str = 'utf-8',
    file_client_args: dict[str, Any] | None = None,
) -> list[str]:
    """The lines of a text file, without their ends.

    Args:
        filename: a path or URL.
        prefix: put before each line.
        offset: how many lines to leave out at the start, at least 0.
        max_num: how many lines to read at most; 0 or less for all.
        encoding: of the file.
        file_client_args: as in `load`.
    """
    check_backend(file_client_args)
    with open_file(filename, encoding=encoding) as file:
        lines = [prefix + line.rstrip('\n\r') for line in file]
    return lines[offset : offset + max_num if max_num > 0 else None]


def dict_from_file(
    filename: str | os.PathLike[str],
    key_type: type = str,
    encoding: str = 'utf-8',
    file_client_args: dict[str, Any] | None = None,
) -> dict[Any, Any]:
    """A mapping from a text file: on each line a key, and then its value or values, parted by spaces.

    Args:
        filename: a path or URL.
        key_type: what the keys are turned into.
        encoding: of the file.
        file_client_args: as in `load`.

    Raises:
        ValueError: a line has no value.
    """
    mapping = {}
    for number, line in enumerate(list_from_file(filename, encoding=encoding, file_client_args=file_client_args), 1):
        key, *values = line.split(' ')
        if not values:
            raise ValueError(f'{filename}:{number} must hold a key and at least one value, but is {line!r}')
        mapping[key_type(key)] = values[0] if len(values) == 1 else values
    return mapping


def check_backend(file_client_args: dict[str, Any] | None) -> None:
    """Refuse a storage backend that is not the one of the path itself.

    Raises:
        ValueError: another backend than 'disk' is asked for.
    """
    backend = (file_client_args or {}).get('backend', 'disk')
    if backend != 'disk':
        raise ValueError(f"backend {backend!r} is not known; leave it out and give the file's URL (s3://…) instead")


def _handler(file: Any, file_format: str | None) -> BaseFileHandler:
    if file_format is None:
        if not isinstance(file, str | os.PathLike):
            raise ValueError('file_format must be specified where there is no file name to tell it')
        file_format = os.fspath(file).rpartition('.')[2]
    return handler_for(file_format)
