"""Storages on the disk, behind a web server, and behind any URL that fsspec knows."""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

from runnerkit.fileio.paths import PathOrUrl, fsspec_module, join
from runnerkit.utils.paths import mkdir_or_exist

Suffix = str | tuple[str, ...] | None


class BaseStorageBackend(ABC):
    """Where files are kept.

    What a storage can do beyond reading, it has more methods for, by the names of those of `HardDiskBackend`.
    """

    _allow_symlink = False

    @property
    def name(self) -> str:
        """The class's name."""
        return type(self).__name__

    @property
    def allow_symlink(self) -> bool:
        """Whether a file can be a link to another."""
        return self._allow_symlink

    @abstractmethod
    def get(self, filepath: PathOrUrl) -> bytes | memoryview:
        """The bytes of a file."""

    @abstractmethod
    def get_text(self, filepath: PathOrUrl, encoding: str = 'utf-8') -> str:
        """The text of a file."""


class HardDiskBackend(BaseStorageBackend):
    """Files by their paths."""

    _allow_symlink = True

    def get(self, filepath: PathOrUrl) -> bytes:
        """The bytes of a file."""
        with open(filepath, 'rb') as file:
            return file.read()

    def get_text(self, filepath: PathOrUrl, encoding: str = 'utf-8') -> str:
        """The text of a file, its lines ending in ``\\n`` whatever they end in there."""
        with open(filepath, encoding=encoding) as file:
            return file.read()

    def put(self, obj: bytes, filepath: PathOrUrl) -> None:
        """Write bytes; the folder is made."""
        mkdir_or_exist(os.path.dirname(filepath))
        with open(filepath, 'wb') as file:
            file.write(obj)

    def put_text(self, obj: str, filepath: PathOrUrl, encoding: str = 'utf-8') -> None:
        """Write text; the folder is made."""
        mkdir_or_exist(os.path.dirname(filepath))
        with open(filepath, 'w', encoding=encoding) as file:
            file.write(obj)

    def remove(self, filepath: PathOrUrl) -> None:
        """Delete a file."""
        os.remove(filepath)

    def exists(self, filepath: PathOrUrl) -> bool:
        """Whether there is a file or folder."""
        return os.path.exists(filepath)

    def isdir(self, filepath: PathOrUrl) -> bool:
        """Whether it is a folder."""
        return os.path.isdir(filepath)

    def isfile(self, filepath: PathOrUrl) -> bool:
        """Whether it is a file."""
        return os.path.isfile(filepath)

    def join_path(self, filepath: PathOrUrl, *filepaths: PathOrUrl) -> str:
        """A path and what lies below it, in one path."""
        return os.path.join(filepath, *filepaths)

    def get_local_path(self, filepath: PathOrUrl) -> AbstractContextManager[PathOrUrl]:
        """The path itself, for use in a ``with``."""
        return nullcontext(filepath)

    def list_dir_or_file(
        self,
        dir_path: PathOrUrl,
        list_dir: bool = True,
        list_file: bool = True,
        suffix: Suffix = None,
        recursive: bool = False,
    ) -> Iterator[str]:
        """What a folder holds, but for hidden files, as paths relative to it. Arguments as in `FileClient`."""

        def entries(inside: str) -> list[tuple[str, bool]]:
            found = sorted(os.scandir(os.path.join(dir_path, inside)), key=lambda entry: entry.name)
            return [(each.name, each.is_dir()) for each in found if each.is_dir() or not each.name.startswith('.')]

        return listing(entries, list_dir, list_file, suffix, recursive)


class HTTPBackend(BaseStorageBackend):
    """Files that a web server gives out, by their URLs; they can be read only."""

    def get(self, filepath: PathOrUrl) -> bytes:
        """The bytes at a URL."""
        from urllib.request import urlopen  # brings in http, ssl and email

        with urlopen(str(filepath)) as answer:
            content: bytes = answer.read()
        return content

    def get_text(self, filepath: PathOrUrl, encoding: str = 'utf-8') -> str:
        """The text at a URL."""
        return self.get(filepath).decode(encoding)

    def get_local_path(self, filepath: PathOrUrl) -> AbstractContextManager[str]:
        """A copy on the disk, for as long as the ``with`` lasts."""
        return local_copy(self.get(filepath))


class FsspecBackend(BaseStorageBackend):
    """Files by any URL that fsspec knows (``s3://``, ``gs://``, ``hdfs://``, ``memory://``); ordinary paths, too.

    Args:
        **storage_options: what fsspec needs for them, such as keys.
    """

    def __init__(self, **storage_options: Any) -> None:
        fsspec_module()
        self._options = storage_options

    def get(self, filepath: PathOrUrl) -> bytes:
        """The bytes at a URL."""
        content: bytes = self._call('cat_file', filepath)
        return content

    def get_text(self, filepath: PathOrUrl, encoding: str = 'utf-8') -> str:
        """The text at a URL."""
        return self.get(filepath).decode(encoding)

    def put(self, obj: bytes, filepath: PathOrUrl) -> None:
        """Write bytes, whole or not at all; the folder is made where the storage has folders.

        An object store shows an upload when it is complete. A file system shows a file from its first byte on: there it
        is written under the name ``.<name>.tmp``, and moved when it is complete.
        """
        filesystem, path = self._open(filepath)
        folder, _, name = path.rpartition('/')
        with suppress(PermissionError):  # to make a bucket may be forbidden where to write into it is not
            filesystem.makedirs(folder, exist_ok=True)
        if not _renames(filesystem):
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
        """When a file was written, in seconds since 1970; 0 where the storage does not tell."""
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

    def exists(self, filepath: PathOrUrl) -> bool:
        """Whether there is a file or folder."""
        return bool(self._call('exists', filepath))

    def isdir(self, filepath: PathOrUrl) -> bool:
        """Whether it is a folder."""
        return bool(self._call('isdir', filepath))

    def isfile(self, filepath: PathOrUrl) -> bool:
        """Whether it is a file."""
        return bool(self._call('isfile', filepath))

    def join_path(self, filepath: PathOrUrl, *filepaths: PathOrUrl) -> str:
        """A URL and what lies below it, in one URL."""
        return join(filepath, *(os.fspath(each) for each in filepaths))

    def get_local_path(self, filepath: PathOrUrl) -> AbstractContextManager[str]:
        """A copy on the disk, for as long as the ``with`` lasts."""
        return local_copy(self.get(filepath))

    def list_dir_or_file(
        self,
        dir_path: PathOrUrl,
        list_dir: bool = True,
        list_file: bool = True,
        suffix: Suffix = None,
        recursive: bool = False,
    ) -> Iterator[str]:
        """What a folder holds, as paths relative to it. Arguments as in `FileClient`."""
        filesystem, root = self._open(dir_path)

        def entries(inside: str) -> list[tuple[str, bool]]:
            found = filesystem.ls(join(root, inside) if inside else root, detail=True)
            return sorted((each['name'].rstrip('/').rpartition('/')[2], each['type'] == 'directory') for each in found)

        return listing(entries, list_dir, list_file, suffix, recursive)

    def _open(self, filepath: PathOrUrl) -> tuple[Any, str]:
        """The file system behind a URL, and the path in it."""
        filesystem, path = fsspec_module().core.url_to_fs(os.fspath(filepath), **self._options)
        return filesystem, path

    def _call(self, method: str, filepath: PathOrUrl) -> Any:
        filesystem, path = self._open(filepath)
        return getattr(filesystem, method)(path)


def _renames(filesystem: Any) -> bool:
    """Whether it can move a file; fsspec copies and deletes where it cannot."""
    return type(filesystem).mv is not fsspec_module().AbstractFileSystem.mv


def _move_over(filesystem: Any, source: str, target: str) -> None:
    try:
        filesystem.mv(source, target)
    except Exception:
        if not filesystem.exists(target):
            raise
        filesystem.rm_file(target)  # some (HDFS, SFTP) do not move over a file
        filesystem.mv(source, target)


@contextmanager
def local_copy(content: bytes | memoryview) -> Iterator[str]:
    """A temporary file with ``content``, for as long as the ``with`` lasts."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'file')
        with open(path, 'wb') as file:
            file.write(content)
        yield path


def listing(
    entries: Callable[[str], Iterable[tuple[str, bool]]],
    list_dir: bool,
    list_file: bool,
    suffix: Suffix,
    recursive: bool,
) -> Iterator[str]:
    """What a folder holds.

    Args:
        entries: gives name, and whether it is a folder, of everything in a folder; that by its path, ``''`` at first.
        list_dir: whether to give folders.
        list_file: whether to give files.
        suffix: how files' names must end.
        recursive: whether to look into folders.

    Raises:
        TypeError: ``suffix`` is of another type, or given along with ``list_dir``.
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
