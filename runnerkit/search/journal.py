"""The file in which Optuna keeps a study."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from optuna.storages.journal import BaseJournalBackend, JournalFileBackend


class Journal(BaseJournalBackend):
    """Optuna's journal file, written by one process, the one that holds the lock of the study's work dir.

    Optuna's own backend locks the file and waits for the disk at each of the dozen entries of a trial. Here the disk is
    waited for once, at `sync`: entries survive any kill of the process without it, and a power failure with it. What an
    interrupted write has left of a line is removed.

    Args:
        path: of the file.
    """

    def __init__(self, path: str) -> None:
        self._file = open(path, 'ab')  # noqa: SIM115  # open as long as the study is
        keep = len_of_lines(path)
        if keep < self._file.tell():
            self._file.truncate(keep)
        self._reader = JournalFileBackend(path)

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        """The entries from number ``log_number_from`` on."""
        return self._reader.read_logs(log_number_from)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write entries at the end."""
        self._file.write(b''.join(json.dumps(log, separators=(',', ':')).encode() + b'\n' for log in logs))
        self._file.flush()

    def sync(self) -> None:
        """Wait until all of it is on the disk."""
        os.fsync(self._file.fileno())


def len_of_lines(path: str) -> int:
    """Bytes of a file up to the end of its last whole line."""
    with open(path, 'rb') as file:
        return file.read().rfind(b'\n') + 1
