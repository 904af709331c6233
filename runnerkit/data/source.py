"""What a stream is read from: a small protocol, which a message queue can speak as well; a folder; a server."""

from __future__ import annotations

import json
import logging
import math
import os
import reprlib
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn, TypeAlias
from urllib.parse import urlsplit

from runnerkit.registry import Registry
from runnerkit.utils.exceptions import WrongValue
from runnerkit.utils.logging import printable

SOURCES = Registry('source')


class Event(NamedTuple):
    """One event of a stream.

    Attributes:
        offset: its place: a number, a text, or a list of these, see `is_offset`. Offsets grow from event to event.
        payload: what is trained on, once it is decoded.
    """

    offset: Any
    payload: Any


class Malformed(NamedTuple):
    """A record that is no event. It is counted and kept aside.

    Attributes:
        text: the record, as far as it could be read.
        problem: what is wrong with it.
        offset: its place; None if that is not known.
    """

    text: str
    problem: str
    offset: Any = None


#: What a source gives; None while there is nothing.
Record: TypeAlias = 'Event | Malformed | None'


class Source(ABC):
    """Where events come from.

    A source keeps its events until they are acknowledged, and gives those after any later offset again, in the same
    order. Then each event is trained on once, whatever happens to the run: a checkpoint holds the offset up to which it
    has trained, a resumed run asks for what follows, and an event is acknowledged when a checkpoint that contains its
    update is on disk.

    In a distributed run the source is read on rank 0 alone, and its events are dealt out to the ranks.
    """

    @abstractmethod
    def read(self, after: Any) -> Iterator[Record]:
        """The records after an offset; the stream has ended when the iterator has. Called in a separate thread.

        Args:
            after: the offset; None for the beginning. What lies at it or before it may come again, and is dropped.

        Returns:
            events in the order of their offsets, malformed records, and None now and then while there is nothing, so
            that the thread can be ended.
        """

    def acknowledge(self, offset: Any) -> None:  # noqa: B027 (may be left out)
        """The updates of all events up to ``offset`` are in a checkpoint on disk. Called in the main thread, so it must
        not wait for long. It may be called again with the same offset, and need not have an effect at once. What it
        raises is logged, and the run continues: the next acknowledgement includes this one."""

    def close(self) -> None:  # noqa: B027
        """End a `read` that waits, in another thread; `read` may be called again later."""


def is_offset(value: Any) -> bool:
    """Whether ``value`` can be an event's offset: a number of at most 64 bits, a text, or a list of these; every one of
    them can be in a checkpoint, and be compared. A larger number is a fault, and all later events would lie before it.
    """
    parts = value if isinstance(value, (list, tuple)) and value else [value]
    numbers = [part for part in parts if not isinstance(part, str)]
    # The comparison is false for NaN.
    return all(isinstance(n, int | float) and not isinstance(n, bool) and abs(n) < 2**63 for n in numbers)


#: The most bytes of a line. Longer ones are malformed, and never in memory as a whole.
LONGEST = 1 << 20


class Lines:
    """The lines of a connection, or of a file that may still grow.

    Args:
        file: opened in binary mode.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._half = b''  # of a line whose end is not there yet
        self._is_too_long = False  # the line that is read

    def read(self) -> Iterator[bytes | Malformed]:
        """The lines that end with a newline, and a `Malformed` for each that is longer than `LONGEST`; may be called
        again when the file has grown."""
        while part := self._file.readline(LONGEST + 1 - len(self._half)):
            line, self._half = self._half + part, b''
            is_whole = line.endswith(b'\n')
            if self._is_too_long:  # the rest of it
                self._is_too_long = not is_whole
            elif len(line) > LONGEST:
                self._is_too_long = not is_whole
                yield Malformed(shortened_text(line), f'the line is longer than {LONGEST} bytes')
            elif is_whole:
                yield line
            else:
                self._half = line

    def last(self) -> Iterator[bytes]:
        """A line without a newline at the end, if there is one."""
        line, self._half = self._half, b''
        if line:
            yield line


def parse_event(line: bytes, offset: Any) -> Event | Malformed:
    """The event at ``offset`` whose payload is the JSON value in ``line``, or a `Malformed`."""
    value = parse_line(line, offset)
    return value if isinstance(value, Malformed) else Event(offset, value)


def parse_line(line: bytes, offset: Any = None) -> Any:
    """The JSON value in a line, or a `Malformed`."""
    try:
        return json.loads(line, parse_constant=_refuse_constant, parse_float=_finite)
    except ValueError as error:  # wrong UTF-8 is one, too
        return Malformed(shortened_text(line), f'no JSON: {error}', offset)
    except RecursionError:
        return Malformed(shortened_text(line), 'no JSON: it is nested too deeply', offset)


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f'{reprlib.repr(text)} is larger than any float')
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f'{name} is no number')


def shortened_text(line: bytes, longest: int = 10000) -> str:
    """A line as text of at most so many characters, whatever is in it."""
    text = line.decode('utf-8', 'backslashreplace').rstrip('\n')
    return text if len(text) <= longest else f'{text[:longest]}…'


# --- a folder ---------------------------------------------------------------------------------------------------------


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
        file: _GrowingFile | None = None
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
                        opened = _GrowingFile(self.path / name, line if name == last else 0)
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


class _GrowingFile:
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
        yield from self._new_records(self._lines.read())
        if is_whole:
            yield from self._new_records(self._lines.last())

    def _new_records(self, lines: Iterable[bytes | Malformed]) -> Iterator[Record]:
        for line in lines:
            self._number += 1
            offset = [self.name, self._number]
            if self._number <= self._skipped or not (isinstance(line, Malformed) or line.strip()):
                continue
            yield line._replace(offset=offset) if isinstance(line, Malformed) else parse_event(line, offset)

    def close(self) -> None:
        """Read no more of it."""
        self._file.close()


# --- a server ---------------------------------------------------------------------------------------------------------


_PATIENCE = 10.0  # seconds for a connection, and for an acknowledgement
_QUIET = 60.0  # seconds between two warnings about a silent server

#: A machine that is gone without a word is noticed after two minutes: the system would wait for two hours.
_KEEPALIVE = {'TCP_KEEPIDLE': 60, 'TCP_KEEPINTVL': 15, 'TCP_KEEPCNT': 4}

logger = logging.getLogger('runnerkit')


@SOURCES.register_module()
class EndpointSource(Source):
    """A server that sends a line of JSON for each event: ``{"offset": 17, "event": …}``, and ``{"end": true}`` when no
    more come. Empty lines are allowed, as a sign of life.

    The first line that the server gets is ``{"after": 16}`` (or null, for the beginning), and it answers with the
    events behind that offset; or it is ``{"ack": 16}``, on a separate connection, which the server closes then.

    The run connects to the server; it opens no port itself. What comes is read as JSON, which cannot run code, in lines
    of at most 1 MiB: a longer one is malformed. So the buffer of a `Stream` is limited in bytes as well.

    A server that does not answer, or closes the connection without an end, is asked again after a pause, from where the
    connection broke.

    Args:
        url: ``tcp://host:port``.
        retry: seconds before it is asked again; doubled at each failure in a row, up to 30.
    """

    def __init__(self, url: str, retry: float = 0.5) -> None:
        form = f'url must be tcp://host:port, but got {url!r}'
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise WrongValue(f'{form}: {error}') from None
        if parts.scheme != 'tcp' or not parts.hostname or not port:
            raise WrongValue(form)
        self.url, self.retry = url, retry
        self._address = parts.hostname, port
        self._socket: socket.socket | None = None  # of the connection that is read
        self._closed = threading.Event()
        self._sender: ThreadPoolExecutor | None = None  # of acknowledgements
        self._acknowledged: Any = None  # the last offset that is, or is to be
        self._has_failed = False  # to send it
        self._told_at = -_QUIET

    def read(self, after: Any) -> Iterator[Record]:
        """See `Source`."""
        self._closed.clear()
        failures = 0
        while not self._closed.is_set():
            try:
                with self._open(after) as file:
                    for record in self._records(file):
                        failures = 0
                        if record is None:
                            return
                        if isinstance(record, Event):
                            after = record.offset
                        yield record
                problem = 'the connection was closed'
            except OSError as error:
                problem = printable(error, 200) or type(error).__name__
            finally:
                connection, self._socket = self._socket, None
                if connection is not None:
                    connection.close()
            if self._closed.is_set():
                return
            if failures and time.monotonic() - self._told_at > _QUIET:
                logger.warning('%s does not answer (%s); it is asked again and again', self.url, problem)
                self._told_at = time.monotonic()
            yield None
            self._closed.wait(min(30.0, self.retry * 2**failures))
            failures = min(failures + 1, 10)

    def _records(self, file: IO[bytes]) -> Iterator[Record]:
        """The records in ``file``, but for one that is cut off: it comes again. None at the end of the stream."""
        for line in Lines(file).read():
            if isinstance(line, Malformed):
                yield line
            elif line.strip():
                record = _record_in(line)
                yield record
                if record is None:
                    return

    def _open(self, after: Any) -> IO[bytes]:
        """Ask for the events behind ``after``; the lines of the answer."""
        connection = socket.create_connection(self._address, timeout=_PATIENCE)
        connection.sendall(json.dumps({'after': after}).encode() + b'\n')
        # From now on it may be quiet for any time; the system notices when the other machine is gone.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE.items():
            if hasattr(socket, option):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        connection.settimeout(None)
        self._socket = connection
        if self._closed.is_set():  # meanwhile
            connection.shutdown(socket.SHUT_RDWR)
        return connection.makefile('rb')

    def acknowledge(self, offset: Any) -> None:
        """Send the acknowledgement, in a separate thread; if that fails, the next one is as good."""
        if offset == self._acknowledged and not self._has_failed:
            return
        self._acknowledged = offset
        if self._sender is None:
            self._sender = ThreadPoolExecutor(1, thread_name_prefix='acknowledge')
        self._sender.submit(self._send, offset)

    def _send(self, offset: Any) -> None:
        if offset != self._acknowledged:  # a later one waits behind it, and includes it
            return
        line = json.dumps({'ack': offset}).encode() + b'\n'
        try:
            with socket.create_connection(self._address, timeout=_PATIENCE) as connection:
                connection.sendall(line)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)  # it is closed when the server has read the line
        except OSError as error:
            logger.warning('cannot acknowledge events to %s: %s', self.url, printable(error, 200))
            self._has_failed = True
        else:
            self._has_failed = False

    def close(self) -> None:
        """See `Source`; waits for an acknowledgement that is on its way."""
        self._closed.set()
        connection = self._socket
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.shutdown()


def _record_in(line: bytes) -> Record:
    """The event in a line; None if it says that the stream has ended."""
    found = parse_line(line)
    if isinstance(found, Malformed):
        return found
    if not isinstance(found, dict):
        return Malformed(shortened_text(line), 'it is no object of JSON')
    if found.get('end') is True and 'event' not in found:
        return None
    offset = found.get('offset')
    if not is_offset(offset):
        return Malformed(shortened_text(line), 'its "offset" is neither a number nor a text nor a list of these')
    if 'event' not in found:
        return Malformed(shortened_text(line), 'it has no "event"', offset)
    return Event(offset, found['event'])
