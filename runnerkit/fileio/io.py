"""`load` and `dump`: objects from and to files, in the format that the file's name tells."""

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
    """Read an object from a JSON, YAML or pickle file (or of a format that `register_handler` added).

    Reading a pickle runs whatever code is in it: read only your own.

    Args:
        file: a path, a URL or an open file.
        file_format: the format; by default the file's extension. An open file needs it.
        file_client_args: arguments of `FileClient`, which gets the file; None lets the URL choose it.
        **kwargs: go to the format's handler.

    Raises:
        TypeError: ``file`` is neither a path nor an open file, or the format is not known.
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
    """Write an object to a JSON, YAML or pickle file, or give it back as text or bytes.

    Args:
        obj: what to write.
        file: a path, a URL or an open file; folders on a local path are made. None to get the text.
        file_format: the format; by default the file's extension. An open file, and no file, need it.
        file_client_args: as in `load`.
        **kwargs: go to the format's handler.

    Returns:
        None, or the text or bytes if ``file`` is None.

    Raises:
        TypeError: ``file`` is neither a path nor an open file, or the format is not known.
        ValueError: there is neither a file nor a format.
    """
    if file is None and file_format is None:
        raise ValueError(f'file_format must be specified since file is None: one of {", ".join(file_handlers)}')
    handler = _handler(file, file_format)
    if file is None:
        return handler.dump_to_str(obj, **kwargs)
    if isinstance(file, str | os.PathLike):
        client = FileClient.infer_client(file_client_args, os.fspath(file))
        # Only what has been written whole is put there: an object with no place in the format spoils no file.
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
    """The lines of a text file, without their ends.

    Args:
        filename: a path or URL.
        prefix: put before each line.
        offset: how many lines to leave out at the start.
        max_num: how many lines to read at most; 0 or less for all.
        encoding: of the file.
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
        key, *values = line.split() or ['']
        if not values:
            raise WrongValue(f'{filename}:{number} must hold a key and at least one value, but is {line!r}')
        mapping[key_type(key)] = values[0] if len(values) == 1 else values
    return mapping


def _handler(file: Any, file_format: str | None) -> BaseFileHandler:
    if file_format is None and isinstance(file, str | os.PathLike):
        file_format = os.fspath(file).rpartition('.')[2]
    return handler_for(file_format)
