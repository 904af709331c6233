"""A stopwatch."""

from __future__ import annotations

from time import perf_counter
from typing import Any


class TimerError(Exception):
    """A timer was read that is not running.

    Args:
        message: the error's message.
    """

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


class Timer:
    """A stopwatch; as a context manager it prints how long the block took.

    Args:
        start: start it at once.
        print_tmpl: the text to print, with a placeholder for the seconds.
    """

    def __init__(self, start: bool = True, print_tmpl: str | None = None) -> None:
        self._is_running = False
        self.print_tmpl = print_tmpl or '{:.3f}'
        if start:
            self.start()

    @property
    def is_running(self) -> bool:
        """Whether it is running."""
        return self._is_running

    def start(self) -> None:
        """Start the timer. If it is already running, only the last check is set to now."""
        now = perf_counter()
        if not self._is_running:
            self._start = now
            self._is_running = True
        self._last = now

    def since_start(self) -> float:
        """Seconds since the start; counts as a check.

        Raises:
            TimerError: the timer is not running.
        """
        self._last = self._now()
        return self._last - self._start

    def since_last_check(self) -> float:
        """Seconds since the last check or the start, whichever was later; counts as a check.

        Raises:
            TimerError: the timer is not running.
        """
        now = self._now()
        passed = now - self._last
        self._last = now
        return passed

    def _now(self) -> float:
        if not self._is_running:
            raise TimerError('timer is not running: call start() first')
        return perf_counter()

    def __enter__(self) -> Timer:
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        print(self.print_tmpl.format(self.since_last_check()))
        self._is_running = False


_timers: dict[str, Timer] = {}


def check_time(timer_id: str) -> float:
    """Seconds since the last call with the same ``timer_id``; 0 at the first call."""
    if timer_id not in _timers:
        _timers[timer_id] = Timer()
        return 0
    return _timers[timer_id].since_last_check()
