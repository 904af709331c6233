"""Where time goes: a clock that always runs for exactly one part of the work, and the table of what it has shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import Any, Protocol

#: How many readings of a clock may wait to be counted; those of a GPU are known only when it has come that far.
_WAITING = 4096


class Clock(Protocol):
    """Something that can be read at two moments, and then tells how much time lies between them."""

    #: Whose time it shows, for people.
    description: str

    def now(self) -> Any:
        """This moment."""

    def seconds(self, start: Any, end: Any) -> float:
        """The time between two moments."""


class WallClock:
    """The clock of this machine."""

    description = 'wall time of the host'
    now = staticmethod(time.perf_counter)

    def seconds(self, start: float, end: float) -> float:
        """The time between two moments."""
        return end - start


@dataclass
class Part:
    """How often a part of the work was begun, and how long it took all in all, without what it spent in others."""

    name: str
    count: int = 0
    seconds: float = 0.0


class Stopwatch:
    """Counts every moment between `start` and `stop` for one part: the innermost that is open. So the parts add up to
    the whole.

    Between a stop and the next start it can be told everything and counts nothing. Other threads than the one that has
    started it are not heard.

    Args:
        clock: what is read.
        mark: makes a context manager from a part's name, which is entered while the part is open: the name's range in
            the trace of a profiler.
    """

    def __init__(
        self, clock: Clock | None = None, mark: Callable[[str], AbstractContextManager[Any]] | None = None
    ) -> None:
        self.clock: Clock = WallClock() if clock is None else clock
        self._mark = mark
        self._parts: dict[str, Part] = {}
        self._open: list[tuple[Part, AbstractContextManager[Any] | None]] = []
        self._waiting: list[tuple[Part, Any, Any]] = []
        self._last: Any = None
        self._thread = 0

    @property
    def current(self) -> str | None:
        """The innermost open part; None while nothing is counted."""
        return self._open[-1][0].name if self._open else None

    def start(self, name: str) -> None:
        """Begin to count, for the part ``name``, in which all others lie until `change`."""
        self.stop()
        self._thread = get_ident()
        self._last = self.clock.now()
        self._begin(name)

    def stop(self) -> None:
        """End all open parts, and count no longer."""
        self.leave(0)

    def change(self, name: str) -> None:
        """End all open parts; ``name`` is now the one in which others lie. If it is the only one, it goes on."""
        if self._is_heard() and not (len(self._open) == 1 and self.current == name):
            self.leave(0)
            self._begin(name)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing meanwhile; the open parts go on afterwards."""
        if not self._is_heard():
            yield
            return
        self._count()
        try:
            yield
        finally:
            self._last = self.clock.now()

    def enter(self, name: str) -> int | None:
        """Begin a part; returns what `leave` needs in order to end it."""
        if not self._is_heard():
            return None
        self._count()
        self._begin(name)
        return len(self._open) - 1

    def leave(self, depth: int | None) -> None:
        """End the part whose beginning has returned ``depth``, and those that were begun in it and not ended."""
        if depth is None or depth >= len(self._open) or not self._is_heard():
            return
        self._count()
        while len(self._open) > depth:
            mark = self._open.pop()[1]
            if mark is not None:
                mark.__exit__(None, None, None)

    def parts(self) -> list[Part]:
        """What has been counted so far, in the order in which the parts were first met."""
        self._settle()
        return list(self._parts.values())

    def _is_heard(self) -> bool:
        return bool(self._open) and get_ident() == self._thread

    def _begin(self, name: str) -> None:
        part = self._parts.setdefault(name, Part(name))
        mark = None
        if not self._open or self._open[-1][0] is not part:  # a part in itself is still the same one
            part.count += 1
            mark = None if self._mark is None else self._mark(name)
        if mark is not None:
            mark.__enter__()
        self._open.append((part, mark))

    def _count(self) -> None:
        """The time since the last reading is that of the innermost part."""
        now = self.clock.now()
        self._waiting.append((self._open[-1][0], self._last, now))
        self._last = now
        if len(self._waiting) >= _WAITING:
            self._settle()

    def _settle(self) -> None:
        for part, start, end in self._waiting:
            part.seconds += self.clock.seconds(start, end)
        self._waiting.clear()


#: What a table can be sorted by.
SORT_KEYS: dict[str, Callable[[Part], Any]] = {
    'total': lambda part: -part.seconds,
    'count': lambda part: -part.count,
    'name': lambda part: part.name,
}


def time_table(parts: list[Part], iterations: int, sort_by: str = 'total') -> str:
    """A table of ``parts``, whose last row is the sum of the others.

    Args:
        parts: what `Stopwatch.parts` gave.
        iterations: how many of them the times are of, at least 1.
        sort_by: one of `SORT_KEYS`.

    Returns:
        Lines of ``part, count, total (milliseconds), mean per iteration (milliseconds), share of the whole``.
    """
    whole = Part('whole', iterations, sum(part.seconds for part in parts))
    rows = [*sorted(parts, key=SORT_KEYS[sort_by]), whole]
    width = max(len(part.name) for part in rows)
    lines = [f'{"part":<{width}}  {"count":>7}  {"total ms":>10}  {"ms/iter":>9}  {"share":>7}']
    for part in rows:
        total, share = 1e3 * part.seconds, part.seconds / (whole.seconds or 1.0)
        numbers = f'{part.count:>7}  {total:>10.2f}  {total / iterations:>9.3f}  {share:>7.1%}'
        lines.append(f'{part.name:<{width}}  {numbers}')
    lines.insert(-1, '-' * len(lines[0]))
    return '\n'.join(lines)
