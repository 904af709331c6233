"""A stopwatch that assigns each moment to exactly one part of the work, and a table of the parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import Any

#: How many readings are collected before they are added up: reading a GPU event waits for the GPU.
_WAITING = 4096


@dataclass(frozen=True)
class Clock:
    """A source of time.

    Attributes:
        description: what it measures, for the user.
        now: returns the current moment.
        seconds: ``seconds(start, end)``, the time between two moments.
    """

    description: str
    now: Callable[[], Any]
    seconds: Callable[[Any, Any], float]


WALL = Clock('wall time of the host', time.perf_counter, lambda start, end: end - start)


@dataclass
class TimedPart:
    """How often a part of the work began, and its total time, without the time of parts inside it."""

    name: str
    count: int = 0
    seconds: float = 0.0


class Stopwatch:
    """Assigns the time between `start` and `stop` to the innermost open part, so that the parts add up to the whole.

    Calls have no effect while it is stopped, and in threads other than the one that started it.

    Args:
        clock: the source of time.
    """

    def __init__(self, clock: Clock = WALL) -> None:
        self.clock = clock
        self._parts: dict[str, TimedPart] = {}
        self._open: list[TimedPart] = []
        self._waiting: list[tuple[TimedPart, Any, Any]] = []
        self._last: Any = None
        self._thread = 0

    @property
    def current(self) -> str | None:
        """The innermost open part; None while stopped."""
        return self._open[-1].name if self._open else None

    def start(self, name: str) -> None:
        """Start with the part ``name``, which contains all others until `change`."""
        self.stop()
        self._thread = get_ident()
        self._last = self.clock.now()
        self._begin(name)

    def stop(self) -> None:
        """End all open parts and stop."""
        self.leave(0)

    def change(self, name: str) -> None:
        """End all open parts and begin ``name``, which contains all others from now on; a no-op if only it is open."""
        if self._counts() and (len(self._open) > 1 or self.current != name):
            self.leave(0)
            self._begin(name)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A context manager for a part."""
        depth = self.enter(name)
        try:
            yield
        finally:
            self.leave(depth)

    def enter(self, name: str) -> int | None:
        """Begin a part; returns the argument with which `leave` ends it."""
        if not self._counts():
            return None
        self._read()
        self._begin(name)
        return len(self._open) - 1

    def leave(self, depth: int | None) -> None:
        """End the part for which `enter` returned ``depth``, and all parts still open inside it."""
        if depth is None or depth >= len(self._open) or not self._counts():
            return
        self._read()
        del self._open[depth:]

    def parts(self) -> list[TimedPart]:
        """The times so far, in the order in which the parts first began."""
        self._add_up()
        return list(self._parts.values())

    def _counts(self) -> bool:
        return bool(self._open) and get_ident() == self._thread

    def _begin(self, name: str) -> None:
        part = self._parts.setdefault(name, TimedPart(name))
        if not (self._open and self._open[-1] is part):  # a part inside itself continues it
            part.count += 1
        self._open.append(part)

    def _read(self) -> None:
        """Assign the time since the last reading to the innermost part."""
        now = self.clock.now()
        self._waiting.append((self._open[-1], self._last, now))
        self._last = now
        if len(self._waiting) >= _WAITING:
            self._add_up()

    def _add_up(self) -> None:
        for part, start, end in self._waiting:
            part.seconds += self.clock.seconds(start, end)
        self._waiting.clear()


#: What a table can be sorted by.
SORT_KEYS: dict[str, Callable[[TimedPart], Any]] = {
    'total': lambda part: -part.seconds,
    'count': lambda part: -part.count,
    'name': lambda part: part.name,
}


def time_table(parts: list[TimedPart], iterations: int, sort_by: str = 'total') -> str:
    """A table of ``parts``; the last row is their sum.

    Args:
        parts: the result of `Stopwatch.parts`.
        iterations: how many iterations were measured, at least 1.
        sort_by: one of `SORT_KEYS`.

    Returns:
        Rows of part, count, total in milliseconds, mean per iteration in milliseconds, share of the whole.
    """
    whole = TimedPart('whole', iterations, sum(part.seconds for part in parts))
    rows = [*sorted(parts, key=SORT_KEYS[sort_by]), whole]
    width = max(len(part.name) for part in rows)
    lines = [f'{"part":<{width}}  {"count":>7}  {"total ms":>10}  {"ms/iter":>9}  {"share":>7}']
    for part in rows:
        total, share = 1e3 * part.seconds, part.seconds / (whole.seconds or 1.0)
        numbers = f'{part.count:>7}  {total:>10.2f}  {total / iterations:>9.3f}  {share:>7.1%}'
        lines.append(f'{part.name:<{width}}  {numbers}')
    lines.insert(-1, '-' * len(lines[0]))
    return '\n'.join(lines)
