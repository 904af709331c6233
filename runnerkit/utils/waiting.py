"""Lets a blocking loader poll the run for a stop request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class WaitEnded(Exception):
    """There is no next batch: the run has been asked to end, or the stream is over.

    A loader raises it out of ``next``. The iteration runner then ends, or asks again.

    Args:
        reason: why the run is to end; None if it knows itself.
    """

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or 'the run has been asked to end')
        self.reason = reason


_waiting: ContextVar[Callable[[], bool] | None] = ContextVar('runnerkit_waiting', default=None)


@contextmanager
def waiting_scope(call: Callable[[], bool]) -> Iterator[None]:
    """Let `pulse` call ``call`` inside this context."""
    token = _waiting.set(call)
    try:
        yield
    finally:
        _waiting.reset(token)


def pulse() -> bool:
    """Let the run around this code do what it does while it waits: obey a command, report a checkpoint.

    A loader that waits for data in the main process calls it a few times a second, and raises `WaitEnded` if it
    returns True. `runnerkit.data.StreamLoader` does. In a distributed run all ranks call it together or none does, as
    hooks may talk to the other ranks there.

    Returns:
        whether the run has been asked to end. False outside a run.
    """
    call = _waiting.get()
    return False if call is None else call()
