"""Storage backends: the disk, web servers, and any URL that fsspec can open."""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

from runnerkit.fileio.paths import PathOrUrl, fsspec_module, join

Suffix = str | tuple[str, ...] | None


class BaseStorageBackend(ABC):
    """Reads files of a storage.

    Backends that can do more have further methods, with the names that `FsspecBackend` uses.
    """

    _allow_symlink = False

    @classmethod
    def has_client_library(cls) -> bool:
        """Whether the library that the backend needs is installed; else fsspec opens URLs of its prefixes."""
        return True

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
    """A backend that derives texts and local copies from `get`."""

    def get_text(self, filepath: PathOrUrl, encoding: str = 'utf-8') -> str:
        """The text of a file."""
        return str(self.get(filepath), encoding)

    def get_local_path(self, filepath: PathOrUrl) -> AbstractContextManager[str]:
        """A context manager for a temporary local copy."""
        return local_copy(self.get(filepath))


class ListingBackend(BaseStorageBackend):
    """A backend that can list folders."""

    def list_dir_or_file(
        self,
        dir_path: PathOrUrl,
        list_dir: bool = True,
        list_file: bool = True,
        suffix: Suffix = None,
        recursive: bool = False,
    ) -> Iterator[str]:
        """The contents of a folder, as paths relative to it. Arguments as in `FileClient.list_dir_or_file`."""
        return _listing(self._entries_in(dir_path), list_dir, list_file, suffix, recursive)

    @abstractmethod
    def _entries_in(self, dir_path: PathOrUrl) -> Callable[[str], Iterable[tuple[str, bool]]]:
        """A function that returns the entries of a folder below ``dir_path``; see `_listing`."""


class HTTPBackend(RemoteBackend):
    """Files of a web server, by URL; read-only."""

    def get(self, filepath: PathOrUrl) -> bytes:
        """The bytes at a URL."""
        from urllib.request import urlopen  # imports http, ssl and email

        with urlopen(str(filepath)) as answer:
            content: bytes = answer.read()
        return content


class FsspecBackend(RemoteBackend, ListingBackend):
    """Files at any URL that fsspec can open (``s3://``, ``gs://``, ``hdfs://``, ``memory://``), and ordinary paths.

    Args:
        **storage_options: options of fsspec, such as keys.
    """

    def __init__(self, **storage_options: Any) -> None:
        fsspec_module()
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
        filesystem, path = self._open(filepath)
        folder, _, name = path.rpartition('/')
        with suppress(PermissionError):  # one may be allowed to write to a bucket but not to create it
            filesystem.makedirs(folder, exist_ok=True)
        if type(filesystem).mv is fsspec_module().AbstractFileSystem.mv:  # it would copy and delete
            filesystem.pipe_file(path, obj)
            return
        temporary = f'{folder}/.{name}.tmp'
        try:
            filesystem.pipe_file(temporary, obj)
            _move_over(filesystem, temporary, path)
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
        return join(filepath, *(os.fspath(each) for each in filepaths))

    def _entries_in(self, dir_path: PathOrUrl) -> Callable[[str], Iterable[tuple[str, bool]]]:
        filesystem, root = self._open(dir_path)

        def entries(inside: str) -> list[tuple[str, bool]]:
            found = filesystem.ls(join(root, inside) if inside else root, detail=True)
            return sorted((each['name'].rstrip('/').rpartition('/')[2], each['type'] == 'directory') for each in found)

        return entries

    def _open(self, filepath: PathOrUrl) -> tuple[Any, str]:
        """The file system of a URL, and the path in it."""
        filesystem, path = fsspec_module().core.url_to_fs(os.fspath(filepath), **self._options)
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

    def _entries_in(self, dir_path: PathOrUrl) -> Callable[[str], Iterable[tuple[str, bool]]]:
        def entries(inside: str) -> list[tuple[str, bool]]:
            found = sorted(os.scandir(os.path.join(dir_path, inside)), key=lambda entry: entry.name)
            return [(each.name, each.is_dir()) for each in found if each.is_dir() or not each.name.startswith('.')]

        return entries

    def _open(self, filepath: PathOrUrl) -> tuple[Any, str]:
        from fsspec.implementations.local import LocalFileSystem

        return LocalFileSystem(), os.path.abspath(filepath)


def _move_over(filesystem: Any, source: str, target: str) -> None:
    try:
        filesystem.mv(source, target)
    except Exception:
        if not filesystem.exists(target):
            raise
        filesystem.rm_file(target)  # some (HDFS, SFTP) do not replace an existing file
        filesystem.mv(source, target)


@contextmanager
def local_copy(content: bytes | memoryview) -> Iterator[str]:
    """A context manager for a temporary file with ``content``."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'file')
        with open(path, 'wb') as file:
            file.write(content)
        yield path


def _listing(
    entries: Callable[[str], Iterable[tuple[str, bool]]],
    list_dir: bool,
    list_file: bool,
    suffix: Suffix,
    recursive: bool,
) -> Iterator[str]:
    """The contents of a folder; arguments and errors as in `FileClient.list_dir_or_file`.

    Args:
        entries: called with the path of a folder relative to the first one (``''``); returns pairs of name, is folder.
        list_dir: whether to include folders.
        list_file: whether to include files.
        suffix: the ending of the files' names.
        recursive: whether to search subfolders.
    """
    if list_dir and suffix is not None:
        raise TypeError(
            '`suffix` should be None when `list_dir` is True (`list_dir` should be False when `suffix` is not None)'
        )
    if suffix is not None and not isinstance(suffix, (str, tuple)):
        raise TypeError(f'`suffix` must be a string or tuple of strings, but got {type(suffix)}: {suffix!r}')

    def walk(inside: str) -> Iterator[str]:
        for name, is_folder in entries(inside):
            path = f'{inside}/{name}' if inside else name
            if not is_folder:
                if list_file and (suffix is None or name.endswith(suffix)):
                    yield path
                continue
            if list_dir:
                yield path
            if recursive:
                yield from walk(path)

    return walk('')
