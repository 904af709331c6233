"""Events from the files of a folder that fills up."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from runnerkit.data.source import SOURCES, Lines, Malformed, Record, Source, parse_event
from runnerkit.utils.exceptions import WrongValue


@SOURCES.register_module()
class DirectorySource(Source):
    """The lines of a folder's files, each of them an event in JSON. The offset of an event is [file, line].

    Files are read in the order of their names, so a new file's name must be greater than those of all files before (use
    numbers or times with leading zeros). One that comes too late is not read, but counted and told like a malformed
    record, and stays where it is. Write a file under another name (one that does not match ``pattern``) and rename it,
    or append whole lines to the file with the greatest name: a line is read when its newline is there, and a last one
    without a newline when a later file, or ``end``, is there.

    Args:
        path: the folder. It may be created later.
        pattern: which files belong to the stream.
        end: a file of this name says that no more files come. None: the stream never ends.
        poll: how many seconds lie between two looks into the folder.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        pattern: str = '*.jsonl',
        end: str | None = 'END',
        poll: float = 0.1,
    ) -> None:
        if os.path.exists(path) and not os.path.isdir(path):
            raise WrongValue(f'path must be a folder, but {os.fspath(path)} is a file')
        if not (isinstance(poll, (int, float)) and 0 < poll < math.inf):
            raise WrongValue(f'poll must be a number of seconds above 0, but got {poll!r}')
        self.path = Path(path)
        self.pattern, self.end, self.poll = pattern, end, poll
        self._closed = threading.Event()

    def read(self, after: Any) -> Iterator[Record]:
        """See `Source`."""
        self._closed.clear()
        last, line = ('', 0) if after is None else (str(after[0]), int(after[1]))
        known = {name for name in self._names() if name < last}
        file: _File | None = None
        try:
            while not self._closed.is_set():
                is_over = self.end is not None and (self.path / self.end).exists()  # first: no file comes after it
                names = self._names()
                known.intersection_update(names)
                for name in names:
                    if name in known:
                        continue
                    known.add(name)
                    if name < last:
                        yield Malformed(name, f'the file comes too late: {last}, which is behind it, is read already')
                        continue
                    if name == last and file is not None:
                        yield Malformed(name, 'a file of this name was read already')
                        continue
                    try:
                        opened = _File(self.path / name, line if name == last else 0)
                    except FileNotFoundError:
                        yield Malformed(name, 'the file was removed before it was read')
                        continue
                    if file is not None:
                        yield from file.records(is_whole=True)
                        file.close()
                    file, last = opened, name
                    yield from file.records()
                if file is not None:
                    yield from file.records(is_whole=is_over)
                if is_over:
                    return
                yield None
                self._closed.wait(self.poll)
        finally:
            if file is not None:
                file.close()

    def _names(self) -> list[str]:
        try:
            with os.scandir(self.path) as entries:
                return sorted(entry.name for entry in entries if fnmatch(entry.name, self.pattern) and entry.is_file())
        except FileNotFoundError:
            return []

    def close(self) -> None:
        """See `Source`."""
        self._closed.set()


class _File:
    """The records of a file that may still grow.

    Args:
        path: the file.
        skipped: how many of its lines were read by an earlier run.
    """

    def __init__(self, path: Path, skipped: int) -> None:
        self.name = path.name
        self._file = path.open('rb')
        self._lines, self._skipped = Lines(self._file), skipped
        self._number = 0

    def records(self, is_whole: bool = False) -> Iterator[Record]:
        """Those that were not there when this was called last."""
        yield from self._found(self._lines.read())
        if is_whole:
            yield from self._found(self._lines.last())

    def _found(self, lines: Iterable[bytes | Malformed]) -> Iterator[Record]:
        for line in lines:
            self._number += 1
            offset = [self.name, self._number]
            if self._number <= self._skipped or not (isinstance(line, Malformed) or line.strip()):
                continue
            yield line._replace(offset=offset) if isinstance(line, Malformed) else parse_event(line, offset)

    def close(self) -> None:
        """Read no more of it."""
        self._file.close()
