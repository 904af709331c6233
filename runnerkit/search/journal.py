"""The file in which Optuna keeps a study."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from optuna.storages.journal import BaseJournalBackend, JournalFileBackend

from runnerkit.utils.exceptions import WrongValue
from runnerkit.utils.small_files import open_plain


class Journal(BaseJournalBackend):
    """Optuna's journal file, written by one process, the one that holds the lock of the study's work dir.

    Optuna's own backend locks the file and waits for the disk at each of the dozen entries of a trial. Here the disk is
    waited for once, at `sync`: entries survive any kill of the process without it, and a power failure with it. What an
    interrupted write has left is removed. Entries that are written at once all end in a space but the last one, which
    tells whether all of them are there.

    Args:
        path: of the file.
    """

    def __init__(self, path: str) -> None:
        # Unbuffered, so that nothing is left to be written later when the disk is full.
        self._path, self._file = path, open(open_plain(path), 'ab', buffering=0)  # noqa: SIM115
        keep, self._count = whole_lines(path)
        if keep < self._file.tell():
            self._file.truncate(keep)
        self._reader = JournalFileBackend(path)
        self._held: list[dict[str, Any]] | None = None

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        """The entries from number ``log_number_from`` on."""
        if log_number_from < self._count:
            try:
                yield from self._reader.read_logs(log_number_from)
            except ValueError as error:
                raise WrongValue(
                    f'{self._path} is damaged: {error}. Put back a copy of it, or remove the folder of the whole search'
                ) from None
        yield from (self._held or [])[max(0, log_number_from - self._count) :]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write entries at the end."""
        if self._held is not None:
            self._held += logs
            return
        rest = memoryview(b' \n'.join(json.dumps(log, separators=(',', ':')).encode() for log in logs) + b'\n')
        while rest:
            rest = rest[self._file.write(rest) :]
        self._count += len(logs)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write the entries that are made inside at once, at the end: a kill or an error leaves all of them or none."""
        held = self._held = []
        try:
            yield
        finally:
            self._held = None
        if held:
            self.append_logs(held)

    def sync(self) -> None:
        """Wait until all of it is on the disk."""
        os.fsync(self._file.fileno())


def whole_lines(path: str) -> tuple[int, int]:
    """Bytes of a file up to the end of the last write that is whole, and how many lines that are."""
    with open(path, 'rb') as file:
        content = file.read()
    end = content.rfind(b'}\n')
    return (0, 0) if end < 0 else (end + 2, content.count(b'\n', 0, end + 2))
