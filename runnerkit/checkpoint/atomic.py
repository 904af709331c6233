"""Local files of checkpoints, which are written completely or not at all; and how to recognise a sharded one."""

from __future__ import annotations

import errno
import itertools
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from runnerkit.utils.env import is_alive

BLOCK = 1 << 20

#: Of the files of a sharded checkpoint, the list of all, which is written last, and torch's table of contents.
MANIFEST, METADATA = 'MANIFEST', '.metadata'

_TEMPORARY = '.{name}.{pid}-{number}.tmp'
_TEMPORARY_NAME = re.compile(r'^\..+\.(\d+)(-\d+)?\.tmp$')
_write_numbers = itertools.count(1)

#: What is being written under temporary names, by runs in this process.
_in_use: set[str] = set()


class DiskFile:
    """A new file, written sequentially; an existing file of the same name is replaced. It is on the disk when its block
    has ended without an error.

    Args:
        path: the file.
        name: of the file in errors; by default its path.

    Attributes:
        error: the first error of the disk. `torch.save` raises another error, which does not tell the cause.
    """

    def __init__(self, path: str | os.PathLike[str], name: str | os.PathLike[str] | None = None) -> None:
        self.error: OSError | None = None
        self._name = os.fspath(name or path)
        self._small = bytearray()  # collected before writing: torch writes a few bytes at a time
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.sync()
        finally:
            os.close(self._descriptor)
        if self.error is not None and self.error is not error:
            raise self.error from error

    def write(self, data: Any) -> int:
        """Write all of ``data``, bytes or a buffer of them; returns how many."""
        view = memoryview(data).cast('B')
        if len(self._small) + len(view) < BLOCK:
            self._small += view
        else:
            self.flush(view)
        return len(view)

    def flush(self, more: memoryview | None = None) -> None:
        """Pass buffered data, and ``more``, to the operating system; `sync` brings it to the disk."""
        small, self._small = self._small, bytearray()
        if self.error is not None:  # torch keeps writing after an error, to close its archive
            raise self.error
        try:
            for rest in filter(None, (memoryview(small), more)):
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            self.error = OSError(error.errno, error.strerror, self._name)
            raise self.error from error

    def sync(self) -> None:
        """Wait until everything is on the disk."""
        self.flush()
        os.fsync(self._descriptor)


def save_with_checksums(content: Mapping[str, Any], file: Any) -> None:
    """`torch.save` with checksums, whatever the user has set: without them, the file would count as damaged."""
    import torch  # names alone need none

    wanted = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(True)
    try:
        torch.save(content, file)
    finally:
        torch.serialization.set_crc32_options(wanted)


def write_atomically(
    path: str | os.PathLike[str], content: bytes | Callable[[Any], Any], make_way: Callable[[], Any] = lambda: None
) -> None:
    """Write a temporary file next to ``path``, sync it to the disk, then rename it.

    Whatever happens, ``path`` is either the old file or the complete new one.
    """
    path = Path(path)
    if not path.parent.is_dir():
        make_folder(path.parent)
    with _replacing(path) as temporary:
        with DiskFile(temporary, path) as file:
            file.write(content) if isinstance(content, bytes) else content(file)
        make_way()


def is_checkpoint_folder(path: str | os.PathLike[str]) -> bool:
    """Whether ``path`` is a folder that is one checkpoint, complete or not: of ours, or of
    `torch.distributed.checkpoint`."""
    return any(os.path.isfile(os.path.join(path, name)) for name in (MANIFEST, METADATA))


def replace_link(link: Path, target: str) -> None:
    """Make ``link`` point to ``target``, a name in the same folder, without a moment in which it is missing.

    On file systems without symbolic links, ``link`` becomes a small text file that holds the name.
    """
    with _replacing(link) as temporary:
        try:
            os.symlink(target, temporary)
        except (OSError, NotImplementedError):
            with DiskFile(temporary) as file:
                file.write(target.encode())


def temporary_files(folder: str | os.PathLike[str]) -> list[Path]:
    """The temporary files and folders in ``folder``, of running processes also; none if it cannot be read."""
    try:
        names = os.listdir(folder)  # of tens of thousands, a fraction of a glob's time
    except OSError:
        return []
    return [Path(folder, name) for name in names if name.startswith('.') and name.endswith('.tmp')]


def sweep(folder: str | os.PathLike[str], start: str = '.') -> list[str]:
    """Delete the temporary files and folders that killed processes left in ``folder``, of all names or of those with
    one ``start``, and return their names."""
    found = [path for path in temporary_files(folder) if path.name.startswith(start)]
    return [path.name for path in found if is_abandoned(path) and _remove_quietly(path)]


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary name in the folder of ``path``; it is renamed to ``path`` at the end, or deleted on an error."""
    temporary = path.with_name(temporary_name(path.name))
    if os.path.lexists(temporary):
        _remove_quietly(temporary)
    try:
        with in_use(temporary):
            yield temporary
            os.replace(temporary, path)
    except BaseException:
        _remove_quietly(temporary)
        raise
    flush_folder(path.parent)  # the new name is safe only when the folder is


def temporary_name(name: str) -> str:
    """What a file or folder called ``name`` is called while it is written: in each write by another name, because two
    runs in this process may write the same file."""
    return _TEMPORARY.format(name=name, pid=os.getpid(), number=next(_write_numbers))


@contextmanager
def in_use(temporary: Path) -> Iterator[None]:
    """While this lasts, another run in this process does not delete ``temporary``, a file or folder."""
    name = _real_place(temporary)
    _in_use.add(name)
    try:
        yield
    finally:
        _in_use.discard(name)


def _real_place(path: Path) -> str:
    return os.path.join(os.path.realpath(path.parent), path.name)  # `path` itself may be a link


def is_abandoned(path: Path) -> bool:
    """Whether ``path`` has a `temporary_name`, and nothing writes it any longer."""
    found = _TEMPORARY_NAME.match(path.name)
    if found is None or _real_place(path) in _in_use:
        return False
    # An earlier process may have had the number of this one, as in a container that was restarted.
    return int(found[1]) == os.getpid() or not is_alive(int(found[1]))


def make_folder(folder: Path) -> None:
    """Create ``folder`` and its parents so that they survive a power failure."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    flush_folder(folder.parent)


def flush_folder(folder: Path) -> None:
    """Bring the names in ``folder`` to the disk, so that they survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems do not support it
            raise
    finally:
        os.close(descriptor)


def _remove_quietly(path: Path) -> bool:
    """Delete ``path``; what cannot be deleted now is deleted by `sweep` at the next start."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except OSError:
        return False
    return True
