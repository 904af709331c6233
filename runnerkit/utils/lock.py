"""One run in a folder at a time."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class FolderLock:
    """A claim on a folder, which ends with the process at the latest, however that ends.

    The system keeps it (POSIX record locks, which also NFS has), so that there is no stale one: a killed run never
    keeps the next one out, and neither do worker processes that outlive it. Where a file system has no such locks,
    nothing is claimed.

    Args:
        folder: the folder; it has to exist. While the claim lasts it holds ``.lock``, which says who it is.

    Raises:
        BlockingIOError: another process has claimed it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / '.lock'
        self._file: IO[str] | None = None
        while fcntl is not None and self._file is None:
            file = open(self.path, 'a+', encoding='utf-8')  # noqa: SIM115 (open as long as the claim lasts)
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                with file:
                    file.seek(0)
                    owner = file.read().strip() or 'a process that has just begun'
                raise BlockingIOError(f'{folder} is in use by {owner}') from None
            except OSError:  # no locks here
                file.close()
                return
            if self._is_there(file):
                self._file = file
            else:  # who held it deleted the file meanwhile: a claim on that is worth nothing
                file.close()
        self._sign()

    def release(self) -> None:
        """Give the folder free; more than once does no harm."""
        if self._file is not None:
            with self._file, contextlib.suppress(OSError):
                os.unlink(self.path)
            self._file = None

    def _is_there(self, file: IO[str]) -> bool:
        try:
            return os.path.samestat(os.fstat(file.fileno()), os.stat(self.path))
        except FileNotFoundError:
            return False

    def _sign(self) -> None:
        if self._file is not None:
            since = time.strftime('%Y-%m-%d %H:%M:%S')
            with contextlib.suppress(OSError):  # a full disk does not keep a run from starting
                self._file.truncate(0)
                self._file.write(f'process {os.getpid()} on {socket.gethostname()}, since {since}\n')
                self._file.flush()
