"""Checkpoint files on the disk: written whole or not at all, checked before they are believed."""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from runnerkit.checkpoint.integrity import why_damaged
from runnerkit.fileio.paths import local_path

BLOCK = 1 << 20
TEMPORARY = '.{name}.{pid}.tmp'
_TEMPORARY_NAME = re.compile(r'^\..+\.(\d+)\.tmp$')
_CHECKPOINT_NAME = re.compile(r'(?:epoch|iter)_(\d+)\.pth')

logger = logging.getLogger('runnerkit')


class DiskFile:
    """A new file that is written in order and flushed to the disk; it takes the place of one of the same name.

    Attributes:
        error: the first thing that went wrong with the disk. `torch.save` reports it as an error of its own, which says
            nothing of the cause.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.error: OSError | None = None
        self._small = bytearray()  # pieces that wait for more; torch writes a few bytes at a time
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)

    def __enter__(self) -> DiskFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def write(self, data: Any) -> int:
        """Write all of ``data``, bytes or a buffer of them; returns how many."""
        view = memoryview(data).cast('B')
        if len(self._small) + len(view) < BLOCK:
            self._small += view
        else:
            self.flush()
            self._write(view)
        return len(view)

    def flush(self) -> None:
        """Hand what was written to the operating system; `sync` takes it to the disk."""
        small, self._small = self._small, bytearray()
        self._write(memoryview(small))

    def sync(self) -> None:
        """Return when all is on the disk."""
        self.flush()
        os.fsync(self._descriptor)

    def _write(self, rest: memoryview) -> None:
        if self.error is not None:  # torch goes on after an error, to close its archive
            raise self.error
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            self.error = error
            raise


def write_atomically(path: str | os.PathLike[str], write: Callable[[Any], Any]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, flush it to the disk and only then give it its name.

    Whatever happens on the way, ``path`` is afterwards what it was before or the whole new file.

    Args:
        path: the file; its folder is made.
        write: gets the temporary file, a `DiskFile`, e.g. ``lambda file: torch.save(checkpoint, file)``.

    Raises:
        OSError: the disk is full, a folder is gone …; nothing of the new file is left.
    """
    path = Path(path)
    _make_folder(path.parent)
    temporary = path.with_name(TEMPORARY.format(name=path.name, pid=os.getpid()))
    file = None
    try:
        with DiskFile(temporary) as file:
            write(file)
            file.sync()
        os.replace(temporary, path)
    except BaseException as error:
        _remove_quietly(temporary)
        if file is not None and file.error is not None:
            raise OSError(file.error.errno, file.error.strerror, str(path)) from error
        raise
    _flush_folder(path.parent)  # the new name is safe only when the folder is


def point_latest(target: Path, latest: Path) -> None:
    """Make the link ``latest`` lead to ``target``, a file of the same folder, without a moment in which it leads
    nowhere.

    Where the file system has no links, ``latest`` becomes a small text file with the target's name.
    """
    temporary = latest.with_name(TEMPORARY.format(name=latest.name, pid=os.getpid()))
    _remove_quietly(temporary)
    try:
        os.symlink(target.name, temporary)
    except (OSError, NotImplementedError):
        write_atomically(latest, lambda file: file.write(target.name.encode()))
        return
    try:
        os.replace(temporary, latest)
    except BaseException:
        _remove_quietly(temporary)
        raise
    _flush_folder(latest.parent)


def sweep_temporaries(folder: str | os.PathLike[str]) -> list[str]:
    """Delete what killed runs have left half-written in ``folder``; files of processes that still live are kept."""
    swept = []
    for path in Path(folder).glob('.*.tmp'):
        found = _TEMPORARY_NAME.match(path.name)
        if found and not _is_alive(int(found[1])) and _remove_quietly(path):
            swept.append(path.name)
    return swept


def resolve_latest(path: Path) -> Path:
    """The file that ``latest.pth`` stands for: itself, or the one whose name it holds where there are no links."""
    if path.name != 'latest.pth' or path.is_symlink() or not path.is_file() or path.stat().st_size > 255:
        return path
    named = re.fullmatch(rb'[\w.@-]+\.pth', path.read_bytes())
    return path if named is None else path.with_name(named[0].decode())


def checkpoint_number(name: str) -> int | None:
    """The n of ``epoch_<n>.pth`` and ``iter_<n>.pth``; None for any other name."""
    match = _CHECKPOINT_NAME.fullmatch(name)
    return int(match[1]) if match else None


def checkpoints_in(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """The run's own checkpoints in ``folder``, newest first: ``epoch_<n>.pth`` and ``iter_<n>.pth``, not the best
    ones."""
    found = []
    for path in Path(folder).glob('*.pth'):
        number = checkpoint_number(path.name)
        if number is not None and path.is_file():
            found.append((path.stat().st_mtime_ns, number, path))
    yield from (path for *_, path in sorted(found, reverse=True))


def find_latest_checkpoint(folder: str | os.PathLike[str]) -> Path | None:
    """The newest checkpoint of ``folder`` that is whole: the one ``latest.pth`` names, else the youngest one; None if
    none is.

    One that is younger and has a higher number goes before the named one: a run died before it could name it, or names
    none (``create_symlink=False``). Age alone says little, as copies are not made in order. Damaged files are skipped,
    and said so in the log. For a URL, see `find_latest_at`.
    """
    folder = Path(local_path(folder))
    latest = folder / 'latest.pth'
    candidates = [path.resolve() for path in checkpoints_in(folder)]
    if latest.exists():
        named = resolve_latest(latest).resolve()
        younger = candidates[: candidates.index(named)] if named in candidates else []
        number = checkpoint_number(named.name) or 0
        beyond = [path for path in younger if (checkpoint_number(path.name) or 0) > number]
        candidates = [*beyond, named, *candidates]
    for path in dict.fromkeys(candidates):
        damage = why_damaged(path)
        if damage is None:
            return path
        logger.warning('%s is skipped: %s', path, damage)
    return None


def _make_folder(folder: Path) -> None:
    """Make ``folder`` and what lies above it, in such a way that they outlast a power cut."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _flush_folder(folder.parent)


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot, and need not
            raise
    finally:
        os.close(descriptor)


def _remove_quietly(path: Path) -> bool:
    """Delete ``path``; what cannot be deleted now is swept at the next start."""
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid != os.getpid()
