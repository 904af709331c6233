"""What a stream is read from: one small protocol, which an endpoint, a folder or a message queue can speak."""

from __future__ import annotations

import json
import math
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import IO, Any, NamedTuple, NoReturn, TypeAlias

from runnerkit.registry import Registry

SOURCES = Registry('source')
SOURCES.offer(
    {
        'DirectorySource': 'runnerkit.data.directory_source',
        'EndpointSource': 'runnerkit.data.endpoint_source',
    }
)


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
    return all(map(_is_plain, parts))


def _is_plain(part: Any) -> bool:
    if isinstance(part, int | float) and not isinstance(part, bool):
        return abs(part) < 2**63  # false for NaN
    return isinstance(part, str)


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
