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

from runnerkit.data.source import SOURCES, Event, Malformed, Record, Source, parse_line, shortened_text
from runnerkit.utils.exceptions import WrongValue

_LONGEST = 1 << 20  # bytes of a line
_PATIENCE = 10.0  # seconds for a connection, and for an acknowledgement
_QUIET = 60.0  # seconds between two warnings that nobody answers

logger = logging.getLogger('runnerkit')


@SOURCES.register_module()
class EndpointSource(Source):
    """A server that sends a line of JSON for each event: ``{"offset": 17, "event": …}``, and ``{"end": true}`` when no
    more come. Empty lines are allowed, as a sign of life.

    ``tcp://host:port``: the first line that the server gets is ``{"after": 16}`` (or null, for the beginning), and it
    answers with the events behind that offset; or it is ``{"ack": 16}``, on a connection of its own.

    ``http://host:port/path``: ``GET /path?after=16`` (without the question at the beginning) is answered with the
    events, ``POST /path`` with ``{"ack": 16}`` is an acknowledgement.

    A server that does not answer, or closes the connection without an end, is asked again after a pause, from where the
    connection broke.

    Args:
        url: as above.
        retry: seconds before it is asked again; doubled at each failure in a row, up to 30.
    """

    def __init__(self, url: str, retry: float = 0.5) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ('tcp', 'http') or not parts.hostname or (parts.scheme == 'tcp' and not parts.port):
            raise WrongValue(f'url must be tcp://host:port or http://host:port/path, but got {url!r}')
        self.url, self.retry = url, retry
        self._parts, self._host = parts, parts.hostname
        self._port = parts.port or 80
        self._socket: socket.socket | None = None  # of the connection that is read
        self._closed = threading.Event()
        self._sender: ThreadPoolExecutor | None = None  # of acknowledgements
        self._acknowledged: Any = None
        self._told_at = -_QUIET

    def read(self, after: Any) -> Iterator[Record]:
        """See `Source`."""
        self._closed.clear()
        failures = 0
        while not self._closed.is_set():
            try:
                with self._open(after) as lines:
                    for record in self._records(lines):
                        failures = 0
                        if record is None:
                            return
                        if isinstance(record, Event):
                            after = record.offset
                        yield record
                problem = 'the connection was closed'
            except (OSError, http.client.HTTPException) as error:
                problem = str(error) or type(error).__name__
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

    def _records(self, lines: IO[bytes]) -> Iterator[Record]:
        """The records in ``lines``; None at the end of the stream."""
        while line := lines.readline(_LONGEST):
            if len(line) == _LONGEST and not line.endswith(b'\n'):
                yield Malformed(shortened_text(line), f'the line is longer than {_LONGEST} bytes')
                while line and not line.endswith(b'\n'):
                    line = lines.readline(_LONGEST)
            elif not line.endswith(b'\n'):
                return  # cut off: it comes again
            elif line.strip():
                found = parse_line(line)
                if isinstance(found, Malformed):
                    yield found
                elif isinstance(found, dict) and found.get('end') is True:
                    yield None
                    return
                elif not isinstance(found, dict) or 'offset' not in found or 'event' not in found:
                    yield Malformed(shortened_text(line), 'it has no "offset" and "event"')
                elif type(found['offset']) not in (int, float, str, list):
                    yield Malformed(shortened_text(line), 'its offset is neither a number nor a text nor a list')
                else:
                    yield Event(found['offset'], found['event'])

    def _open(self, after: Any) -> IO[bytes]:
        """Ask for the events behind ``after``; the lines of the answer."""
        if self._parts.scheme == 'tcp':
            connection = socket.create_connection((self._host, self._port), timeout=_PATIENCE)
            connection.sendall(json.dumps({'after': after}).encode() + b'\n')
            lines: IO[bytes] = connection.makefile('rb')
        else:
            asked = http.client.HTTPConnection(str(self._host), self._port, timeout=_PATIENCE)
            asked.connect()
            connection = asked.sock
            query = '' if after is None else f'?after={quote(json.dumps(after))}'
            asked.request('GET', (self._parts.path or '/') + query, headers={'Connection': 'close'})
            lines = check_answer(asked.getresponse())
        # From now on it may be quiet for any time; a machine that is gone is noticed by the system.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.settimeout(None)
        self._socket = connection
        if self._closed.is_set():  # meanwhile
            connection.shutdown(socket.SHUT_RDWR)
        return lines

    def acknowledge(self, offset: Any) -> None:
        """Send the acknowledgement, in a thread of its own; if that fails, the next one is as good."""
        if offset == self._acknowledged:
            return
        self._acknowledged = offset
        if self._sender is None:
            self._sender = ThreadPoolExecutor(1, thread_name_prefix='acknowledge')
        self._sender.submit(self._send, offset)

    def _send(self, offset: Any) -> None:
        line = json.dumps({'ack': offset}).encode() + b'\n'
        try:
            if self._parts.scheme == 'tcp':
                with socket.create_connection((self._host, self._port), timeout=_PATIENCE) as connection:
                    connection.sendall(line)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(1024):  # until the server has read it
                        pass
            else:
                asked = http.client.HTTPConnection(str(self._host), self._port, timeout=_PATIENCE)
                asked.request('POST', self._parts.path or '/', line, {'Content-Type': 'application/json'})
                check_answer(asked.getresponse()).close()
        except (OSError, http.client.HTTPException) as error:
            logger.warning('%s cannot be told what is done: %s', self.url, error)

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


def check_answer(answer: http.client.HTTPResponse) -> http.client.HTTPResponse:
    """``answer``, if it is a good one.

    Raises:
        OSError: the server has refused the request.
    """
    if answer.status >= 300:
        raise OSError(f'it answers {answer.status} {answer.reason}')
    return answer
