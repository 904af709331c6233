"""Events from the files of a folder that fills up."""

from __future__ import annotations

import logging
import math
import os
import shutil
import threading
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from runnerkit.data.source import SOURCES, Lines, Malformed, Record, Source, parse_event
from runnerkit.utils.exceptions import WrongValue
from runnerkit.utils.logging import printable, shortened
from runnerkit.utils.suggest import near_miss, suggestion

_KEEP, _DELETE = 'keep', 'delete'

logger = logging.getLogger('runnerkit')


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
        read_files: what happens with a file that was read to its end, has a later file behind it, and all of whose
            events are acknowledged: ``'keep'``, ``'delete'``, or a folder to move it to. What has changed since it was
            read stays, and so does what an earlier run has left.
        poll: how many seconds lie between two looks into the folder.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        pattern: str = '*.jsonl',
        end: str | None = 'END',
        read_files: str = _KEEP,
        poll: float = 0.1,
    ) -> None:
        if os.path.exists(path) and not os.path.isdir(path):
            raise WrongValue(f'path must be a folder, but {os.fspath(path)} is a file')
        if near_miss(read_files, (_KEEP, _DELETE)):
            hint = suggestion(read_files, (_KEEP, _DELETE))
            raise WrongValue(f"read_files must be 'keep', 'delete' or a folder, but got {read_files!r}{hint}")
        if not (isinstance(poll, (int, float)) and 0 < poll < math.inf):
            raise WrongValue(f'poll must be a number of seconds above 0, but got {poll!r}')
        self.path = Path(path)
        self.pattern, self.end, self.read_files, self.poll = pattern, end, read_files, poll
        self._closed = threading.Event()
        self._finished: dict[str, _Finished] = {}  # files that are read and not put away

    def read(self, after: Any) -> Iterator[Record]:
        """See `Source`."""
        self._closed.clear()
        last, line = ('', 0) if after is None else (str(after[0]), int(after[1]))
        known = {name for name in self._names() if name < last}
        self._finished = {name: file for name, file in list(self._finished.items()) if name < last}
        self._tell_left(known - set(self._finished), last)
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
                        yield from self._finish(file)
                    file, last = opened, name
                    yield from file.records()
                if file is not None and is_over:
                    yield from self._finish(file)
                elif file is not None:
                    yield from file.records()
                if is_over:
                    return
                yield None
                self._closed.wait(self.poll)
        finally:
            if file is not None:
                file.close()

    def _finish(self, file: _File) -> Iterator[Record]:
        """The rest of a file to which nothing is appended any more."""
        yield from file.records(is_whole=True)
        if self.read_files != _KEEP:
            self._finished[file.name] = file.finished()
        file.close()

    def _tell_left(self, names: Collection[str], last: str) -> None:
        """Say which files are not read, and not put away, since they lie before the place where a run continues."""
        if names and self.read_files != _KEEP:
            found = shortened(sorted(names))
            logger.warning(
                'files in %s before %s, where the stream continues, stay where they are: an earlier run has read them, '
                'or they come too late (%s)',
                self.path,
                last,
                found,
            )

    def _names(self) -> list[str]:
        try:
            with os.scandir(self.path) as entries:
                return sorted(entry.name for entry in entries if fnmatch(entry.name, self.pattern) and entry.is_file())
        except FileNotFoundError:
            return []

    def acknowledge(self, offset: Any) -> None:
        """Delete or move the files that are done, if that is wanted."""
        done = tuple(offset)
        for name, file in list(self._finished.items()):
            if (name, file.line) <= done:
                del self._finished[name]
                self._put_away(name, file)

    def _put_away(self, name: str, file: _Finished) -> None:
        path = self.path / name
        try:
            found = path.stat()
            if (found.st_ino, found.st_size) != (file.inode, file.size):
                logger.warning(
                    '%s has changed since it was read. What is new in it is not read, and it stays', printable(path)
                )
            elif self.read_files == _DELETE:
                path.unlink()
            else:
                os.makedirs(self.read_files, exist_ok=True)
                shutil.move(path, Path(self.read_files) / name)  # to another disk, too
        except OSError as error:
            logger.warning('%s is read and acknowledged, but cannot be put away: %s', printable(path), error)

    def close(self) -> None:
        """See `Source`."""
        self._closed.set()


class _Finished(NamedTuple):
    """A file that was read to its end.

    Attributes:
        line: the number of its last record.
        inode: which file it was.
        size: how many bytes it had.
    """

    line: int
    inode: int
    size: int


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
        self._number = self._last = 0

    def records(self, is_whole: bool = False) -> Iterator[Record]:
        """Those that were not there when this was called last.

        Args:
            is_whole: nothing more is appended, so that a last line without a newline counts as well.
        """
        yield from self._found(self._lines.read())
        if is_whole:
            yield from self._found(self._lines.last())

    def _found(self, lines: Iterable[bytes | Malformed]) -> Iterator[Record]:
        for line in lines:
            self._number += 1
            offset = [self.name, self._number]
            if not isinstance(line, Malformed) and not line.strip():
                continue
            self._last = self._number
            if self._number <= self._skipped:
                continue
            yield line._replace(offset=offset) if isinstance(line, Malformed) else parse_event(line, offset)

    def finished(self) -> _Finished:
        """What it was when it was read to its end."""
        return _Finished(self._last, os.fstat(self._file.fileno()).st_ino, self._file.tell())

    def close(self) -> None:
        """Read no more of it."""
        self._file.close()
