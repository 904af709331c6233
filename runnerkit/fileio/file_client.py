"""`FileClient`: one interface to files on the disk, on web servers, and at any URL that fsspec can open."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.util import find_spec
from typing import Any, ClassVar

from runnerkit.fileio.paths import PathOrUrl, join
from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.lazy import EntryPoints
from runnerkit.utils.paths import is_filepath
from runnerkit.utils.suggest import suggestion

Suffix = str | tuple[str, ...] | None

_OFFERED = EntryPoints('runnerkit.storage_backends')


class BaseStorageBackend(ABC):
    """Reads files of a storage.

    Backends that can do more have further methods, with the names that `FsspecBackend` uses.
    """

    _allow_symlink = False

    @property
    def name(self) -> str:
        """The class's name."""
        return type(self).__name__

    @property
    def allow_symlink(self) -> bool:
        """Whether the backend supports symbolic links."""
        return self._allow_symlink

    @abstractmethod
    def get(self, filepath: PathOrUrl) -> bytes | memoryview:
        """The bytes of a file."""

    @abstractmethod
    def get_text(self, filepath: PathOrUrl, encoding: str = 'utf-8') -> str:
        """The text of a file."""


class RemoteBackend(BaseStorageBackend):
    """A backend that derives texts and local copies from `get`, and lists of files from `_entries`."""

    def get_text(self, filepath: PathOrUrl, encoding: str = 'utf-8') -> str:
        """The text of a file."""
        return str(self.get(filepath), encoding)

    @contextmanager
    def get_local_path(self, filepath: PathOrUrl) -> Iterator[PathOrUrl]:
        """A context manager for a temporary local copy."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'file')
            with open(path, 'wb') as file:
                file.write(self.get(filepath))
            yield path

    def list_dir_or_file(
        self,
        dir_path: PathOrUrl,
        list_dir: bool = True,
        list_file: bool = True,
        suffix: Suffix = None,
        recursive: bool = False,
    ) -> Iterator[str]:
        """The contents of a folder, as paths relative to it. Arguments as in `FileClient.list_dir_or_file`."""
        if list_dir and suffix is not None:
            raise TypeError(
                '`suffix` should be None when `list_dir` is True (`list_dir` should be False when `suffix` is not None)'
            )
        if suffix is not None and not isinstance(suffix, (str, tuple)):
            raise TypeError(f'`suffix` must be a string or tuple of strings, but got {type(suffix)}: {suffix!r}')

        def walk(folder: PathOrUrl, above: str) -> Iterator[str]:
            for name, is_folder in self._entries(folder):
                if list_dir if is_folder else list_file and (suffix is None or name.endswith(suffix)):
                    yield above + name
                if is_folder and recursive:
                    yield from walk(join(folder, name), f'{above}{name}/')

        return walk(dir_path, '')

    def _entries(self, folder: PathOrUrl) -> Iterable[tuple[str, bool]]:
        """The names in a folder, and whether each is a folder."""
        raise NotImplementedError(f'{self.name} cannot list {os.fspath(folder)}')


class HTTPBackend(RemoteBackend):
    """Files of a web server, by URL; read-only."""

    def get(self, filepath: PathOrUrl) -> bytes:
        """The bytes at a URL."""
        from urllib.request import urlopen  # imports http, ssl and email

        with urlopen(str(filepath)) as answer:
            content: bytes = answer.read()
        return content


class FsspecBackend(RemoteBackend):
    """Files at any URL that fsspec can open (``s3://``, ``gs://``, ``hdfs://``, ``memory://``), and ordinary paths.

    Args:
        **storage_options: options of fsspec, such as keys.
    """

    def __init__(self, **storage_options: Any) -> None:
        self._options = storage_options

    def get(self, filepath: PathOrUrl) -> bytes:
        """The bytes at a URL."""
        content: bytes = self._call('cat_file', filepath)
        return content

    def put(self, obj: bytes, filepath: PathOrUrl) -> None:
        """Write bytes, completely or not at all; folders are created if the storage has any.

        An object store shows an upload only when it is complete. On file systems, the file is written as
        ``.<name>.tmp`` and renamed when it is complete.
        """
        from fsspec import AbstractFileSystem

        filesystem, path = self._open(filepath)
        folder, _, name = path.rpartition('/')
        with suppress(PermissionError):  # one may be allowed to write to a bucket but not to create it
            filesystem.makedirs(folder, exist_ok=True)
        if type(filesystem).mv is AbstractFileSystem.mv:  # it would copy and delete
            filesystem.pipe_file(path, obj)
            return
        temporary = f'{folder}/.{name}.tmp'
        try:
            filesystem.pipe_file(temporary, obj)
            try:
                filesystem.mv(temporary, path)
            except Exception:
                if not filesystem.exists(path):
                    raise
                filesystem.rm_file(path)  # some (HDFS, SFTP) do not replace an existing file
                filesystem.mv(temporary, path)
        except BaseException:
            with suppress(Exception):
                filesystem.rm_file(temporary)
            raise

    def modified(self, filepath: PathOrUrl) -> float:
        """A file's modification time in seconds since 1970; 0 if the storage does not tell."""
        try:
            written: float = self._call('modified', filepath).timestamp()
        except NotImplementedError:
            return 0.0
        return written

    def put_text(self, obj: str, filepath: PathOrUrl, encoding: str = 'utf-8') -> None:
        """Write text."""
        self.put(obj.encode(encoding), filepath)

    def remove(self, filepath: PathOrUrl) -> None:
        """Delete a file."""
        self._call('rm_file', filepath)

    def move(self, filepath: PathOrUrl, target: PathOrUrl) -> None:
        """Move a file within a storage; an object store copies and deletes."""
        filesystem, path = self._open(filepath)
        _, inside = self._open(target)
        with suppress(PermissionError):  # as in `put`
            filesystem.makedirs(inside.rpartition('/')[0], exist_ok=True)
        filesystem.mv(path, inside)

    def exists(self, filepath: PathOrUrl) -> bool:
        """Whether a file or folder exists."""
        return bool(self._call('exists', filepath))

    def isdir(self, filepath: PathOrUrl) -> bool:
        """Whether it is a folder."""
        return bool(self._call('isdir', filepath))

    def isfile(self, filepath: PathOrUrl) -> bool:
        """Whether it is a file."""
        return bool(self._call('isfile', filepath))

    def join_path(self, filepath: PathOrUrl, *filepaths: PathOrUrl) -> str:
        """Join parts of a URL."""
        return join(filepath, *(os.fspath(part) for part in filepaths))

    def _entries(self, folder: PathOrUrl) -> Iterable[tuple[str, bool]]:
        filesystem, path = self._open(folder)
        contents = filesystem.ls(path, detail=True)
        return sorted(
            (entry['name'].rstrip('/').rpartition('/')[2], entry['type'] == 'directory') for entry in contents
        )

    def _open(self, filepath: PathOrUrl) -> tuple[Any, str]:
        """The file system of a URL, and the path in it."""
        from fsspec.core import url_to_fs

        filesystem, path = url_to_fs(os.fspath(filepath), **self._options)
        return filesystem, path

    def _call(self, method: str, filepath: PathOrUrl) -> Any:
        filesystem, path = self._open(filepath)
        return getattr(filesystem, method)(path)


class HardDiskBackend(FsspecBackend):
    """Files on the disk. Hidden files are not listed."""

    _allow_symlink = True

    def __init__(self) -> None:
        """Nothing: the disk has no options, and fsspec is imported when a file is read or written."""

    def get_text(self, filepath: PathOrUrl, encoding: str = 'utf-8') -> str:
        """The text of a file, with all line ends as ``\\n``."""
        with open(filepath, encoding=encoding) as file:
            return file.read()

    def put(self, obj: bytes, filepath: PathOrUrl) -> None:
        """Write bytes, completely or not at all; of a link, the file behind it."""
        super().put(obj, os.path.realpath(filepath))

    def get_local_path(self, filepath: PathOrUrl) -> AbstractContextManager[PathOrUrl]:  # type: ignore[override]
        """A context manager for the path itself."""
        return nullcontext(filepath)

    def _entries(self, folder: PathOrUrl) -> Iterable[tuple[str, bool]]:
        contents = sorted(os.scandir(folder), key=lambda entry: entry.name)
        return [(entry.name, entry.is_dir()) for entry in contents if entry.is_dir() or not entry.name.startswith('.')]

    def _open(self, filepath: PathOrUrl) -> tuple[Any, str]:
        from fsspec.implementations.local import LocalFileSystem

        return LocalFileSystem(), os.path.abspath(filepath)


class FileClient:
    """Files in a storage backend, which is chosen by its name or by the prefix of a URL.

    The same arguments give the same object. ``s3://`` uses Petrel if ``petrel_client`` is installed, else fsspec. Other
    prefixes that are not registered use fsspec. Installed packages add backends as entry points of the group
    ``runnerkit.storage_backends``.

    Args:
        backend: the backend's name; by default, and without a ``prefix``, the disk.
        prefix: the prefix of URLs (``'s3'``), if ``backend`` is None.
        **kwargs: arguments of the backend's constructor.

    Attributes:
        client: the backend.

    Raises:
        ValueError: there is no backend for that name or prefix.
    """

    _backends: ClassVar[dict[str, type[BaseStorageBackend]]] = {
        'disk': HardDiskBackend,
        'http': HTTPBackend,
        'fsspec': FsspecBackend,
    }
    #: Classes, or the name of one.
    _prefix_to_backends: ClassVar[dict[str, type[BaseStorageBackend] | str]] = {
        's3': 'petrel',
        'http': HTTPBackend,
        'https': HTTPBackend,
    }
    _instances: ClassVar[dict[str, FileClient]] = {}

    client: HardDiskBackend | FsspecBackend  # or one with fewer methods
    _made_with: tuple[str | None, str | None, dict[str, Any]]

    def __new__(cls, backend: str | None = None, prefix: str | None = None, **kwargs: Any) -> FileClient:
        """The one client with these arguments."""
        if backend is None and prefix is None:
            backend = 'disk'
        key = ':'.join([str(backend), str(prefix), *(f'{name}:{value}' for name, value in kwargs.items())])
        if key not in cls._instances:
            storage = cls.backend_class(backend) if backend is not None else cls._storage_behind(str(prefix))
            client = super().__new__(cls)
            client.client = storage(**kwargs)  # type: ignore[assignment]
            client._made_with = (backend, prefix, kwargs)
            cls._instances[key] = client
        return cls._instances[key]

    def __reduce__(self) -> Any:
        # Copying or unpickling gives the one client of that process with these arguments.
        backend, prefix, kwargs = self._made_with
        return functools.partial(type(self), **kwargs), (backend, prefix)

    @classmethod
    def backend_class(cls, name: str) -> type[BaseStorageBackend]:
        """The class of the backend that is registered as ``name``, or that an installed package offers.

        Raises:
            ValueError: there is no such backend.
        """
        backend: type[BaseStorageBackend] | None = cls._backends.get(name) or _OFFERED.load(str(name))
        if backend is None:
            names = cls.backend_names()
            raise ValueError(
                f'Backend {name} is not supported. Currently supported ones are {names}{suggestion(str(name), names)}'
            )
        return backend

    @classmethod
    def backend_names(cls) -> list[str]:
        """The backends that are registered here, and those that installed packages offer."""
        return list(dict.fromkeys([*cls._backends, *_OFFERED.names()]))

    @classmethod
    def _storage_behind(cls, prefix: str) -> type[BaseStorageBackend]:
        if prefix not in cls._prefix_to_backends:
            import fsspec

            if prefix not in fsspec.available_protocols():
                raise ValueError(
                    f'prefix {prefix} is not supported. Currently supported ones are {list(cls._prefix_to_backends)} '
                    'and those of fsspec; `FileClient.register_backend` adds another'
                )
        storage = cls._prefix_to_backends.get(prefix, FsspecBackend)
        if not isinstance(storage, str):
            return storage
        has_petrel = sys.modules.get('petrel_client') or find_spec('petrel_client')
        return cls.backend_class(storage) if has_petrel else FsspecBackend

    @property
    def name(self) -> str:
        """The name of the backend's class."""
        return self.client.name

    @property
    def allow_symlink(self) -> bool:
        """Whether the backend supports symbolic links."""
        return self.client.allow_symlink

    @staticmethod
    def parse_uri_prefix(uri: PathOrUrl) -> str | None:
        """The prefix of a URL: ``'s3'`` for ``'s3://a'`` and for ``'cluster:s3://a'``; None for a path."""
        if not is_filepath(uri):
            raise WrongType(f'uri must be a str or a Path, but got {type(uri)}: {uri!r}')
        scheme, separator, _ = str(uri).partition('://')
        return scheme.rpartition(':')[2] if separator else None

    @classmethod
    def infer_client(cls, file_client_args: dict[str, Any] | None = None, uri: PathOrUrl | None = None) -> FileClient:
        """The client for these arguments, or if there are none, for the prefix of ``uri``.

        Args:
            file_client_args: arguments of `FileClient`.
            uri: a path or URL.
        """
        if file_client_args is not None:
            return cls(**file_client_args)
        if uri is None:
            raise WrongValue('infer_client needs file_client_args, such as dict(backend="disk"), or a uri')
        return cls(prefix=cls.parse_uri_prefix(uri))

    @classmethod
    def register_backend(
        cls,
        name: str,
        backend: type[BaseStorageBackend] | None = None,
        force: bool = False,
        prefixes: str | list[str] | tuple[str, ...] | None = None,
    ) -> Any:
        """Register a backend. Without ``backend``, this is a class decorator.

        Args:
            name: the backend's name.
            backend: its class.
            force: whether to replace a backend of the same name or prefix.
            prefixes: the prefixes of its URLs.

        Raises:
            KeyError: the name or a prefix is already registered.
            TypeError: an argument is of a wrong type.
        """
        if backend is None:

            def register(decorated: type[Any]) -> type[Any]:
                cls.register_backend(name, decorated, force=force, prefixes=prefixes)
                return decorated

            return register
        if not isinstance(name, str):
            raise TypeError(f'the backend name should be a string, but got {type(name)}: {name!r}')
        if not isinstance(backend, type):
            raise TypeError(f'backend should be a class but got {type(backend)}: {backend!r}')
        if not issubclass(backend, BaseStorageBackend):
            raise TypeError(f'backend {backend} is not a subclass of BaseStorageBackend')
        prefixes = [prefixes] if isinstance(prefixes, str) else prefixes or []
        if not isinstance(prefixes, (list, tuple)):
            raise WrongType(f'prefixes must be a str, or a list or tuple of them, but got {prefixes!r}')
        taken = (
            [name]
            if name in cls.backend_names()
            else [prefix for prefix in prefixes if prefix in cls._prefix_to_backends]
        )
        if taken and not force:
            raise KeyError(
                f'{taken[0]} is already registered as a storage backend, add "force=True" if you want to override it'
            )
        cls._backends[name] = backend
        cls._prefix_to_backends.update(dict.fromkeys(prefixes, backend))
        for key in list(cls._instances):
            of_backend, of_prefix, *_ = key.split(':')
            if of_backend == name or (of_backend == 'None' and of_prefix in prefixes):
                del cls._instances[key]
        return None

    def get(self, filepath: PathOrUrl) -> bytes | memoryview:
        """The bytes of a file."""
        return self.client.get(filepath)

    def get_text(self, filepath: PathOrUrl, encoding: str = 'utf-8') -> str:
        """The text of a file."""
        return self.client.get_text(filepath, encoding)

    def put(self, obj: bytes, filepath: PathOrUrl) -> None:
        """Write bytes; an existing file is replaced."""
        self.client.put(obj, filepath)

    def put_text(self, obj: str, filepath: PathOrUrl) -> None:
        """Write text; an existing file is replaced."""
        self.client.put_text(obj, filepath)

    def remove(self, filepath: PathOrUrl) -> None:
        """Delete a file."""
        self.client.remove(filepath)

    def exists(self, filepath: PathOrUrl) -> bool:
        """Whether a file or folder exists."""
        return self.client.exists(filepath)

    def isdir(self, filepath: PathOrUrl) -> bool:
        """Whether it is a folder."""
        return self.client.isdir(filepath)

    def isfile(self, filepath: PathOrUrl) -> bool:
        """Whether it is a file."""
        return self.client.isfile(filepath)

    def join_path(self, filepath: PathOrUrl, *filepaths: PathOrUrl) -> str:
        """Join parts of a path."""
        return self.client.join_path(filepath, *filepaths)

    def get_local_path(self, filepath: PathOrUrl) -> AbstractContextManager[PathOrUrl]:
        """A context manager for a local path: of the file itself, or of a copy that is deleted afterwards."""
        return self.client.get_local_path(str(filepath))

    def list_dir_or_file(
        self,
        dir_path: PathOrUrl,
        list_dir: bool = True,
        list_file: bool = True,
        suffix: Suffix = None,
        recursive: bool = False,
    ) -> Iterator[str]:
        """The contents of a folder, as paths relative to it.

        Args:
            dir_path: the folder.
            list_dir: whether to include folders.
            list_file: whether to include files.
            suffix: the ending, or endings, of the files' names; only without ``list_dir``.
            recursive: whether to search subfolders.

        Raises:
            TypeError: ``suffix`` is of a wrong type, or given together with ``list_dir``.
        """
        return self.client.list_dir_or_file(dir_path, list_dir, list_file, suffix, recursive)
