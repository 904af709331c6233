"""One run in a folder at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import time
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class FolderLock:
    """A claim on a folder, which ends with the process at the latest, however that ends.

    The system holds it (``flock``), so it never goes stale: neither a killed run nor worker processes that outlive it
    keep the next run out. It belongs to the open file: this process may read or copy ``.lock`` meanwhile. Where a file
    system has no such locks, nothing is claimed.

    Args:
        folder: the folder; it has to exist. While the claim lasts it holds ``.lock``, which says who has claimed it.

    Raises:
        BlockingIOError: it is claimed already, by another process or by this one.
        OSError: ``.lock`` cannot be created, or is not a plain file: a link is not followed.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / '.lock'
        self._file: int | None = None
        while fcntl is not None and self._file is None:
            file = _open_plain(self.path)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.read(file, 1000).decode(errors='replace').strip() or 'a process that has just begun'
                os.close(file)
                raise BlockingIOError(f'{folder} is in use by {owner}') from None
            except OSError:  # no locks here
                os.close(file)
                return
            if self._is_there(file):
                self._file = file
            else:  # its owner deleted the file meanwhile: a lock on that is worth nothing
                os.close(file)
        if self._file is not None:
            _held.add(self)
            self._sign(self._file)

    def release(self) -> None:
        """Give up the claim; more than once does no harm."""
        file, self._file = self._file, None
        if file is not None:
            _held.discard(self)
            with contextlib.suppress(OSError):
                os.unlink(self.path)
            os.close(file)

    def _is_there(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def _sign(self, file: int) -> None:
        since = time.strftime('%Y-%m-%d %H:%M:%S')
        with contextlib.suppress(OSError):  # a full disk does not keep a run from starting
            os.truncate(file, 0)
            os.write(file, f'process {os.getpid()} on {socket.gethostname()}, since {since}\n'.encode())


def _open_plain(path: Path) -> int:
    """``path`` opened to read and write, created if need be; not inherited by programs that this process starts.

    Raises:
        OSError: ELOOP for a link, symbolic or hard; what the system says for anything else that is no plain file.
    """
    link = f'{path.name} in it is a link, which is not followed: delete it'
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        raise OSError(errno.ELOOP, link, str(path)) if error.errno == errno.ELOOP else error from None
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(file)
        text = link if stat.S_ISREG(status.st_mode) else f'{path.name} in it is not a plain file: delete it'
        raise OSError(errno.ELOOP, text, str(path))
    return file


#: The claims of this process.
_held: set[FolderLock] = set()


def _forget() -> None:
    """In a forked process: close its copies of the files, which would keep the parent's locks alive."""
    for lock in _held:
        if lock._file is not None:
            os.close(lock._file)
            lock._file = None
    _held.clear()


if hasattr(os, 'register_at_fork'):
    os.register_at_fork(after_in_child=_forget)
