"""Events from a server, as lines of JSON over TCP or HTTP."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import IO, Any
from urllib.parse import quote, urlsplit

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

    ``tcp://host:port``: the first line that the server gets is ``{"after": 16}`` (or null, for the beginning), and it
    answers with the events behind that offset; or it is ``{"ack": 16}``, on a separate connection, which the server
    closes then.

    ``http://host:port/path``: ``GET /path?after=16`` (without ``after`` at the beginning) is answered with the events,
    ``POST /path`` with ``{"ack": 16}`` is an acknowledgement. A query of the URL's own is sent with both.

    The run connects to the server; it opens no port itself. What comes is read as JSON, which cannot run code, in lines
    of at most 1 MiB: a longer one is malformed. So the buffer of a `Stream` is limited in bytes as well.

    A server that does not answer, or closes the connection without an end, is asked again after a pause, from where the
    connection broke.

    Args:
        url: as above.
        retry: seconds before it is asked again; doubled at each failure in a row, up to 30. An HTTP answer that has an
            end is no failure, even if it has no events.
    """

    def __init__(self, url: str, retry: float = 0.5) -> None:
        form = f'url must be tcp://host:port or http://host:port/path, but got {url!r}'
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise WrongValue(f'{form}: {error}') from None
        has_all = parts.hostname and (port or parts.scheme == 'http')
        if parts.scheme not in ('tcp', 'http') or not has_all or parts.username is not None:
            raise WrongValue(form)
        self.url, self.retry = url, retry
        self._is_http, self._host, self._port = parts.scheme == 'http', str(parts.hostname), port or 80
        self._path, self._query = parts.path or '/', parts.query
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
                failures = 0 if self._is_http else failures
            except (OSError, http.client.HTTPException) as error:
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
        if self._is_http:
            asked = http.client.HTTPConnection(self._host, self._port, timeout=_PATIENCE)
            asked.connect()
            connection = asked.sock
            place = '' if after is None else f'after={quote(json.dumps(after))}'
            asked.request('GET', self._target(place), headers={'Connection': 'close'})
            file: IO[bytes] = check_answer(asked.getresponse())
        else:
            connection = socket.create_connection((self._host, self._port), timeout=_PATIENCE)
            connection.sendall(json.dumps({'after': after}).encode() + b'\n')
            file = connection.makefile('rb')
        # From now on it may be quiet for any time; the system notices when the other machine is gone.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE.items():
            if hasattr(socket, option):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        connection.settimeout(None)
        self._socket = connection
        if self._closed.is_set():  # meanwhile
            connection.shutdown(socket.SHUT_RDWR)
        return file

    def _target(self, query: str = '') -> str:
        query = '&'.join(filter(None, (self._query, query)))
        return f'{self._path}?{query}' if query else self._path

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
            if self._is_http:
                asked = http.client.HTTPConnection(self._host, self._port, timeout=_PATIENCE)
                asked.request('POST', self._target(), line, {'Content-Type': 'application/json'})
                check_answer(asked.getresponse()).close()
            else:
                with socket.create_connection((self._host, self._port), timeout=_PATIENCE) as connection:
                    connection.sendall(line)
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(1)  # it is closed when the server has read the line
        except (OSError, http.client.HTTPException) as error:
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


def check_answer(answer: http.client.HTTPResponse) -> http.client.HTTPResponse:
    """``answer``, if it is a good one.

    Raises:
        OSError: the server has refused the request.
    """
    if answer.status >= 300:
        raise OSError(f'it answers {answer.status} {answer.reason}')
    return answer
