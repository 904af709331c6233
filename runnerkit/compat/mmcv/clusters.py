"""Storage backends of computing clusters, each with its client library: LMDB, memcached, Ceph, Petrel."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from runnerkit.fileio.file_client import BaseStorageBackend, RemoteBackend
from runnerkit.fileio.paths import PathOrUrl
from runnerkit.utils.exceptions import WrongType, WrongValue


def client_library(module: str, package: str, backend: BaseStorageBackend) -> Any:
    """Import the client library of a backend.

    Raises:
        ImportError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f'Please install {package} to enable {backend.name} ({error})') from error


class BytesBackend(BaseStorageBackend):
    """A backend that holds bytes only."""

    def get_text(self, filepath: PathOrUrl, encoding: str | None = None) -> str:
        """Not supported."""
        raise NotImplementedError(f'{self.name} holds bytes: decode what get({str(filepath)!r}) gives')


class LmdbBackend(BytesBackend):
    """Values of an LMDB database, by key. It is opened at the first read, so that each worker can open it.

    Args:
        db_path: the database.
        readonly: open it for reading only.
        lock: lock it against concurrent access.
        readahead: let the system read ahead.
        **kwargs: arguments of ``lmdb.open``.
    """

    def __init__(
        self, db_path: PathOrUrl, readonly: bool = True, lock: bool = False, readahead: bool = False, **kwargs: Any
    ) -> None:
        client_library('lmdb', 'lmdb', self)
        self.db_path = str(db_path)
        self.readonly = readonly
        self.lock = lock
        self.readahead = readahead
        self.kwargs = kwargs
        self._client: Any = None

    def get(self, filepath: PathOrUrl) -> bytes:
        """The value of a key; None if there is no such key."""
        if self._client is None:
            self._client = self._get_client()
        with self._client.begin(write=False) as transaction:
            value: bytes = transaction.get(str(filepath).encode('utf-8'))
        return value

    def _get_client(self) -> Any:
        options = {'readonly': self.readonly, 'lock': self.lock, 'readahead': self.readahead, **self.kwargs}
        return client_library('lmdb', 'lmdb', self).open(self.db_path, **options)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), '_client': None}  # an open database cannot be sent to a worker

    def __del__(self) -> None:
        if getattr(self, '_client', None) is not None:
            self._client.close()


class MemcachedBackend(BytesBackend):
    """Files through a memcached server.

    Args:
        server_list_cfg: the file that lists the servers.
        client_cfg: the client's configuration file.
        sys_path: the client's folder, to be added to ``sys.path``.
    """

    def __init__(self, server_list_cfg: str, client_cfg: str, sys_path: str | None = None) -> None:
        if sys_path is not None:
            sys.path.append(sys_path)
        library = client_library('mc', 'memcached', self)
        self.server_list_cfg = server_list_cfg
        self.client_cfg = client_cfg
        self._client = library.MemcachedClient.GetInstance(server_list_cfg, client_cfg)
        self._mc_buffer = library.pyvector()

    def get(self, filepath: PathOrUrl) -> memoryview:
        """The bytes of a file."""
        self._client.Get(str(filepath), self._mc_buffer)
        content: memoryview = client_library('mc', 'memcached', self).ConvertBuffer(self._mc_buffer)
        return content


class _Mapped(BaseStorageBackend):
    """A backend that replaces parts of paths.

    Args:
        path_mapping: replacements for parts of a path.
    """

    _client: Any

    def __init__(self, path_mapping: dict[str, str] | None = None) -> None:
        if path_mapping is not None and not isinstance(path_mapping, dict):
            raise WrongType(f'path_mapping must be a dict or None, but got {type(path_mapping)}: {path_mapping!r}')
        self.path_mapping = path_mapping

    def get(self, filepath: PathOrUrl) -> memoryview:
        """The bytes of a file."""
        return memoryview(self._client.Get(self._path(filepath)))

    def _path(self, filepath: PathOrUrl) -> str:
        return self._format_path(self._map_path(filepath))

    def _map_path(self, filepath: PathOrUrl) -> str:
        path = str(filepath)
        for part, replacement in (self.path_mapping or {}).items():
            path = path.replace(part, replacement)
        return path

    def _format_path(self, filepath: str) -> str:
        return filepath.replace('\\', '/')  # Windows joins with backslashes


class CephBackend(_Mapped, BytesBackend):
    """Files in a Ceph cluster, through the library ``ceph``; `PetrelBackend` is its successor.

    Args:
        path_mapping: replacements for parts of a path.
    """

    def __init__(self, path_mapping: dict[str, str] | None = None) -> None:
        library = client_library('ceph', 'ceph', self)
        warnings.warn(
            'CephBackend will be deprecated, please use PetrelBackend instead', DeprecationWarning, stacklevel=2
        )
        self._client = library.S3Client()
        super().__init__(path_mapping)


class PetrelBackend(_Mapped, RemoteBackend):
    """Files in OpenMMLab's object store, through the library ``petrel_client``.

    Args:
        path_mapping: replacements for parts of a path.
        enable_mc: let the client use memcached.
        conf_path: the client's configuration file.
    """

    def __init__(
        self, path_mapping: dict[str, str] | None = None, enable_mc: bool = True, conf_path: str | None = None
    ) -> None:
        package = client_library('petrel_client', 'petrel_client', self)
        library = getattr(package, 'client', None) or client_library('petrel_client.client', 'petrel_client', self)
        self._client = library.Client(conf_path=conf_path, enable_mc=enable_mc)
        super().__init__(path_mapping)

    def put(self, obj: bytes, filepath: PathOrUrl) -> None:
        """Write bytes."""
        self._client.put(self._path(filepath), obj)

    def put_text(self, obj: str, filepath: PathOrUrl, encoding: str = 'utf-8') -> None:
        """Write text."""
        self.put(obj.encode(encoding), filepath)

    def remove(self, filepath: PathOrUrl) -> None:
        """Delete a file."""
        self._ask('delete')(self._path(filepath))

    def exists(self, filepath: PathOrUrl) -> bool:
        """Whether a file or folder exists."""
        contains, isdir = self._ask('contains', 'isdir'), self._ask('isdir', 'contains')
        return bool(contains(self._path(filepath)) or isdir(self._path(filepath)))

    def isdir(self, filepath: PathOrUrl) -> bool:
        """Whether it is a folder."""
        return bool(self._ask('isdir')(self._path(filepath)))

    def isfile(self, filepath: PathOrUrl) -> bool:
        """Whether it is a file."""
        return bool(self._ask('contains')(self._path(filepath)))

    def join_path(self, filepath: PathOrUrl, *filepaths: PathOrUrl) -> str:
        """Join parts of a URL."""
        return '/'.join([self._path(filepath).rstrip('/'), *(self._path(each).strip('/') for each in filepaths)])

    @contextmanager
    def get_local_path(self, filepath: PathOrUrl) -> Iterator[PathOrUrl]:
        """A context manager for a temporary local copy."""
        if not self.isfile(filepath):
            raise WrongValue(f'there is no file {str(filepath)!r} in the store')
        with super().get_local_path(filepath) as path:
            yield path

    def list_dir_or_file(self, dir_path: PathOrUrl, *args: Any, **options: Any) -> Iterator[str]:
        """The contents of a folder, as paths relative to it. Arguments as in `FileClient.list_dir_or_file`."""
        self._ask('list')
        return super().list_dir_or_file(self._path(dir_path), *args, **options)

    def _entries(self, folder: PathOrUrl) -> Iterator[tuple[str, bool]]:
        for name in self._ask('list')(f'{str(folder).rstrip("/")}/'):
            if name.rstrip('/'):
                yield name.rstrip('/'), name.endswith('/')

    def _ask(self, *methods: str) -> Any:
        """The first of the client's ``methods``; old versions of the client lack some of them."""
        if not all(callable(getattr(self._client, method, None)) for method in methods):
            needed = ' and '.join(f'`{method}`' for method in sorted(methods))
            raise NotImplementedError(
                f'Current version of Petrel Python SDK has not supported the {needed} '
                f'method{"s" if len(methods) > 1 else ""}, please use a higher version or dev branch instead.'
            )
        return getattr(self._client, methods[0])
