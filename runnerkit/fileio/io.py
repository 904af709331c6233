"""`load` and `dump`: reading and writing objects, in the format of the file's extension."""

from __future__ import annotations

import os
from io import BytesIO, StringIO
from itertools import islice
from typing import IO, Any

from runnerkit.fileio.file_client import FileClient
from runnerkit.fileio.handlers import BaseFileHandler, file_handlers, handler_for, register_handler
from runnerkit.utils.exceptions import WrongValue

__all__ = ['dict_from_file', 'dump', 'file_handlers', 'list_from_file', 'load', 'register_handler']


def load(
    file: str | os.PathLike[str] | IO[Any],
    file_format: str | None = None,
    file_client_args: dict[str, Any] | None = None,
    **kwargs: Any,
) -> Any:
    """Read an object from a file in JSON, YAML, pickle, or a format added by `register_handler`.

    Loading a pickle runs any code in it: load only your own.

    Args:
        file: a path, a URL or an open file.
        file_format: the format; by default the file's extension. Required for an open file.
        file_client_args: arguments of `FileClient`; by default the path or URL decides.
        **kwargs: passed to the format's handler.

    Raises:
        TypeError: ``file`` is neither a path nor an open file, or the format is unknown.
    """
    handler = _handler(file, file_format)
    if isinstance(file, str | os.PathLike):
        client = FileClient.infer_client(file_client_args, os.fspath(file))
        with StringIO(client.get_text(file)) if handler.str_like else BytesIO(client.get(file)) as opened:
            return handler.load_from_fileobj(opened, **kwargs)
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
    """Write an object to a file in JSON, YAML or pickle, or return it as text or bytes.

    Args:
        obj: the object.
        file: a path, a URL or an open file; local folders are created. None to return the text.
        file_format: the format; by default the file's extension. Required for an open file and without a file.
        file_client_args: as in `load`.
        **kwargs: passed to the format's handler.

    Returns:
        None, or the text or bytes if ``file`` is None.

    Raises:
        TypeError: ``file`` is neither a path nor an open file, or the format is unknown.
        ValueError: neither ``file`` nor ``file_format`` is given.
    """
    if file is None and file_format is None:
        raise ValueError(f'file_format must be specified since file is None: one of {", ".join(file_handlers)}')
    handler = _handler(file, file_format)
    if file is None:
        return handler.dump_to_str(obj, **kwargs)
    if isinstance(file, str | os.PathLike):
        client = FileClient.infer_client(file_client_args, os.fspath(file))
        # The file is written only after the whole object is formatted, so that an error leaves the old file intact.
        put: Any = client.put_text if handler.str_like else client.put
        with StringIO() if handler.str_like else BytesIO() as opened:
            handler.dump_to_fileobj(obj, opened, **kwargs)
            put(opened.getvalue(), file)
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
    """The lines of a text file, without line ends.

    Args:
        filename: a path or URL.
        prefix: put before each line.
        offset: how many lines to skip at the start.
        max_num: the maximum number of lines; 0 or less for all.
        encoding: the file's encoding.
        file_client_args: as in `load`.
    """
    client = FileClient.infer_client(file_client_args, os.fspath(filename))
    first = max(offset, 0)
    with StringIO(client.get_text(filename, encoding)) as lines:
        wanted = islice(lines, first, first + max_num if max_num > 0 else None)
        return [prefix + line.rstrip('\n\r') for line in wanted]


def dict_from_file(
    filename: str | os.PathLike[str],
    key_type: type = str,
    encoding: str = 'utf-8',
    file_client_args: dict[str, Any] | None = None,
) -> dict[Any, Any]:
    """A dict from a text file: each line has a key, then its value or values, separated by spaces.

    Args:
        filename: a path or URL.
        key_type: the type to which keys are converted.
        encoding: the file's encoding.
        file_client_args: as in `load`.

    Raises:
        ValueError: a line has no value.
    """
    mapping = {}
    for number, line in enumerate(list_from_file(filename, encoding=encoding, file_client_args=file_client_args), 1):
        key, *values = line.split() or ['']
        if not values:
            raise WrongValue(f'{filename}:{number} must hold a key and at least one value, but is {line!r}')
        mapping[key_type(key)] = values[0] if len(values) == 1 else values
    return mapping


def _handler(file: Any, file_format: str | None) -> BaseFileHandler:
    if file_format is None and isinstance(file, str | os.PathLike):
        file_format = os.fspath(file).rpartition('.')[2]
    return handler_for(file_format)
