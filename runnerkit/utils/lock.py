"""A lock that allows one run at a time in a folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import time
from pathlib import Path

from runnerkit.utils.env import is_alive
from runnerkit.utils.small_files import open_plain, read_small


class FolderLock:
    """A lock on a folder, which is released when the process ends, if not earlier.

    It is an ``flock``, so it never becomes stale: neither a killed run nor workers that outlive it block the next run.
    It belongs to the open file, so this process may read or copy ``.lock`` meanwhile. On file systems without such
    locks, the folder is not locked.

    Args:
        folder: an existing folder. While it is locked, its file ``.lock`` names the owner.

    Raises:
        BlockingIOError: the folder is already locked, by another process or by this one.
        OSError: ``.lock`` cannot be created, or is not a plain file; links are not followed.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / '.lock'
        self._file: int | None = None
        while self._file is None:
            file = open_plain(self.path)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.read(file, 1000).decode(errors='replace').strip() or 'a process that has just started'
                os.close(file)
                raise BlockingIOError(f'{folder} is in use by {owner}') from None
            except OSError:  # no locks here
                os.close(file)
                return
            if self._is_there(file):
                self._file = file
            else:  # its owner has deleted the file meanwhile, so the lock is useless
                os.close(file)
        _held.add(self)
        since = time.strftime('%Y-%m-%d %H:%M:%S')
        with contextlib.suppress(OSError):  # a full disk must not prevent a run from starting
            os.truncate(self._file, 0)
            os.write(self._file, f'process {os.getpid()} on {socket.gethostname()}, since {since}\n'.encode())

    def release(self) -> None:
        """Release the lock; calling it again has no effect."""
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


def is_locked(path: Path) -> bool:
    """Whether a process of this machine holds the lock in the file ``path``. It is not taken, even for a moment."""
    try:
        status = path.lstat()
        owner = read_small(path, 4096).decode(errors='replace')
    except OSError:
        return False
    try:
        table = Path('/proc/locks').read_text(encoding='ascii', errors='replace')
    except OSError:  # no Linux: the process that has signed the file
        match = re.match(r'process (\d+) ', owner)
        return match is not None and is_alive(int(match[1]))
    place = f'{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}'
    return any('FLOCK' in line and f' {place} ' in line for line in table.splitlines())


#: The locks held by this process.
_held: set[FolderLock] = set()


def _close_inherited_files() -> None:
    """In a forked process: close the inherited files, which would keep the parent's locks alive."""
    for lock in _held:
        if lock._file is not None:
            os.close(lock._file)
            lock._file = None
    _held.clear()


os.register_at_fork(after_in_child=_close_inherited_files)
