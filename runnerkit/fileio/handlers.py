"""Converting objects to and from text or bytes, with one handler per format."""

from __future__ import annotations

import json
import os
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import IO, Any

from runnerkit.fileio.paths import open_file
from runnerkit.utils.suggest import did_you_mean

#: MMCV has a module for each format below this path (`runnerkit.compat.mmcv.aliases`).
__path__: list[str] = []


class BaseFileHandler(ABC):
    """A file format: reading an object from an open file, and writing it to one.

    Attributes:
        str_like: whether the format is text, not bytes.
    """

    str_like = True

    @abstractmethod
    def load_from_fileobj(self, file: IO[Any], **kwargs: Any) -> Any:
        """Read an object from an open file."""

    @abstractmethod
    def dump_to_fileobj(self, obj: Any, file: IO[Any], **kwargs: Any) -> None:
        """Write ``obj`` to an open file."""

    @abstractmethod
    def dump_to_str(self, obj: Any, **kwargs: Any) -> str | bytes:
        """``obj`` as text, or as bytes if the format is binary."""

    def load_from_path(self, filepath: str | os.PathLike[str], mode: str = 'r', **kwargs: Any) -> Any:
        """Read an object from a path or URL."""
        with open_file(filepath, mode) as file:
            return self.load_from_fileobj(file, **kwargs)

    def dump_to_path(self, obj: Any, filepath: str | os.PathLike[str], mode: str = 'w', **kwargs: Any) -> None:
        """Write ``obj`` to a path or URL."""
        with open_file(filepath, mode) as file:
            self.dump_to_fileobj(obj, file, **kwargs)


def _json_default(value: Any) -> Any:
    """Values that JSON does not support: sets and ranges as lists, numpy numbers and arrays as Python's."""
    if isinstance(value, set | range | frozenset):
        return list(value)
    if hasattr(value, 'tolist'):
        return value.tolist()
    raise TypeError(f'{type(value)} is unsupported for json dump: {value!r}')


class JsonHandler(BaseFileHandler):
    """JSON; sets, ranges and numpy values are written as lists and numbers."""

    def load_from_fileobj(self, file: IO[Any], **kwargs: Any) -> Any:
        """Read one JSON value; keyword arguments go to ``json.load``."""
        return json.load(file, **kwargs)

    def dump_to_fileobj(self, obj: Any, file: IO[Any], **kwargs: Any) -> None:
        """Write one JSON value; keyword arguments go to ``json.dump``."""
        json.dump(obj, file, **{'default': _json_default, **kwargs})

    def dump_to_str(self, obj: Any, **kwargs: Any) -> str:
        """``obj`` as JSON text."""
        return json.dumps(obj, **{'default': _json_default, **kwargs})


def _yaml() -> ModuleType:
    """Import PyYAML, which is slow, when this format is first used."""
    return import_module('runnerkit.fileio.yaml_format')


class YamlHandler(BaseFileHandler):
    """YAML without tags that build arbitrary objects. Tuples stay tuples, with PyYAML's tag for them."""

    def load_from_fileobj(self, file: IO[Any], **kwargs: Any) -> Any:
        """Read one document, with the safe loader unless ``Loader`` is given."""
        return _yaml().load(file, **kwargs)

    def dump_to_fileobj(self, obj: Any, file: IO[Any], **kwargs: Any) -> None:
        """Write one document, with the safe dumper unless ``Dumper`` is given."""
        _yaml().dump(obj, file, **kwargs)

    def dump_to_str(self, obj: Any, **kwargs: Any) -> str:
        """``obj`` as YAML text."""
        text: str = _yaml().dump(obj, **kwargs)
        return text


class PickleHandler(BaseFileHandler):
    """Pickle. **Loading a file runs any code in it**: use it only for your own annotation files."""

    str_like = False

    def load_from_fileobj(self, file: IO[Any], **kwargs: Any) -> Any:
        """Read one pickled object."""
        return pickle.load(file, **kwargs)

    def load_from_path(self, filepath: str | os.PathLike[str], mode: str = 'rb', **kwargs: Any) -> Any:
        """Read one pickled object from a path or URL."""
        return super().load_from_path(filepath, mode, **kwargs)

    def dump_to_fileobj(self, obj: Any, file: IO[Any], **kwargs: Any) -> None:
        """Pickle ``obj``, with protocol 2 as in MMCV unless ``protocol`` is given."""
        pickle.dump(obj, file, **{'protocol': 2, **kwargs})

    def dump_to_path(self, obj: Any, filepath: str | os.PathLike[str], mode: str = 'wb', **kwargs: Any) -> None:
        """Write ``obj`` as a pickle to a path or URL."""
        super().dump_to_path(obj, filepath, mode, **kwargs)

    def dump_to_str(self, obj: Any, **kwargs: Any) -> bytes:
        """``obj`` as the bytes of a pickle."""
        return pickle.dumps(obj, **{'protocol': 2, **kwargs})


#: The handler of each format, by file extension.
file_handlers: dict[str, BaseFileHandler] = {
    'json': JsonHandler(),
    'yaml': YamlHandler(),
    'yml': YamlHandler(),
    'pickle': PickleHandler(),
    'pkl': PickleHandler(),
}


def handler_for(file_format: str | None) -> BaseFileHandler:
    """The handler of a format."""
    if file_format is None:
        raise TypeError(
            f'Unsupported format: None; without a file name, give file_format, one of {", ".join(file_handlers)}'
        )
    if file_format not in file_handlers:
        hint = did_you_mean(file_format, file_handlers)
        raise TypeError(
            f'Unsupported format: {file_format!r}; {hint and hint + " "}There are {", ".join(file_handlers)}; '
            f'`register_handler` adds another'
        )
    return file_handlers[file_format]


def register_handler(
    file_formats: str | Sequence[str], **kwargs: Any
) -> Callable[[type[BaseFileHandler]], type[BaseFileHandler]]:
    """A class decorator that registers a handler.

    Args:
        file_formats: its file extensions, without the dot.
        **kwargs: arguments of the handler's constructor.
    """
    formats = [file_formats] if isinstance(file_formats, str) else list(file_formats)
    if not all(isinstance(name, str) for name in formats):
        raise TypeError(f'file_formats must be a str or a list of str, but got {file_formats!r}')

    def register(handler: type[BaseFileHandler]) -> type[BaseFileHandler]:
        if not issubclass(handler, BaseFileHandler):
            raise TypeError(f'a handler must be a subclass of BaseFileHandler, but {handler} is not')
        file_handlers.update(dict.fromkeys(formats, handler(**kwargs)))
        return handler

    return register
