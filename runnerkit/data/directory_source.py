"""Events from the files of a folder that fills up."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from runnerkit.data.source import SOURCES, Event, Malformed, Record, Source, parse_line
from runnerkit.utils.exceptions import WrongValue

logger = logging.getLogger('runnerkit')


@SOURCES.register_module()
class DirectorySource(Source):
    """The lines of a folder's files, each of them an event in JSON. The offset of an event is [file, line].

    Files appear whole: write one under another name (one that does not match ``pattern``), and rename it. They are read
    in the order of their names, so a new file's name must be greater than those of all files before (use numbers or
    times with leading zeros). One that comes too late is not read, but kept aside like a malformed record.

    Args:
        path: the folder. It may be created later.
        pattern: which files belong to the stream.
        end: a file of this name says that no more files come. None: the stream never ends.
        read_files: what happens with a file all of whose events are acknowledged: ``'keep'``, ``'delete'``, or a
            folder to move it to.
        poll: how many seconds lie between two looks into the folder.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        pattern: str = '*.jsonl',
        end: str | None = 'END',
        read_files: str = 'keep',
        poll: float = 0.1,
    ) -> None:
        if os.path.exists(path) and not os.path.isdir(path):
            raise WrongValue(f'path must be a folder, but {os.fspath(path)} is a file')
        self.path = Path(path)
        self.pattern, self.end, self.read_files, self.poll = pattern, end, read_files, poll
        self._closed = threading.Event()
        self._lengths: dict[str, int] = {}  # of files that are read

    def read(self, after: Any) -> Iterator[Record]:
        """See `Source`."""
        self._closed.clear()
        last, line = ('', 0) if after is None else (str(after[0]), int(after[1]))
        known = {name for name in self._names() if name < last}  # read by an earlier run
        while True:
            is_over = self.end is not None and (self.path / self.end).exists()  # before the names: none comes after it
            fresh = [name for name in self._names() if name not in known]
            for name in fresh:
                known.add(name)
                if name < last:
                    yield Malformed(name, f'the file comes too late: {last}, which is behind it, is read already')
                    continue
                yield from self._read_file(name, line if name == last else 0)
                last, line = name, self._lengths.get(name, 0)
            if fresh:
                continue
            if is_over:
                return
            yield None
            if self._closed.wait(self.poll):
                return

    def _read_file(self, name: str, skipped: int) -> Iterator[Record]:
        number = 0
        with (self.path / name).open('rb') as file:
            for number, text in enumerate(file, 1):
                if number > skipped and text.strip():
                    found = parse_line(text, [name, number])
                    yield found if isinstance(found, Malformed) else Event([name, number], found)
        self._lengths[name] = number

    def _names(self) -> list[str]:
        try:
            return sorted(entry.name for entry in os.scandir(self.path) if fnmatch(entry.name, self.pattern))
        except FileNotFoundError:
            return []

    def acknowledge(self, offset: Any) -> None:
        """Delete or move the files that are done, if that is wanted."""
        if self.read_files == 'keep':
            return
        last, line = offset
        for name in self._names():
            if name < last or (name == last and self._lengths.get(name) == line):
                try:
                    if self.read_files == 'delete':
                        os.unlink(self.path / name)
                    else:
                        os.makedirs(self.read_files, exist_ok=True)
                        os.replace(self.path / name, Path(self.read_files) / name)
                except OSError as error:
                    logger.warning('%s is read and acknowledged, but cannot be put away: %s', name, error)

    def close(self) -> None:
        """See `Source`."""
        self._closed.set()
