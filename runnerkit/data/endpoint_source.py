"""Events from a server, as lines of JSON over TCP."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import IO, Any
from urllib.parse import urlsplit

from runnerkit.data.source import (
    SOURCES,
    Event,
    Lines,
    Malformed,
    Record,
    Source,
    is_offset,
    parse_line,
    shortened_text,
)
from runnerkit.utils.exceptions import WrongValue
from runnerkit.utils.logging import printable

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
                record = _record(line)
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


def _record(line: bytes) -> Record:
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
