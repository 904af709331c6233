"""Stopping a run at a boundary, on all ranks at the same one: because of a signal (SIGTERM, SIGINT, or SIGUSR1, which
is Slurm's warning), or because a hook of some rank asks for it."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import distributed as dist

from runnerkit.utils.ending import Grace

if TYPE_CHECKING:
    from runnerkit.distributed.agreement import Agreement

#: The signals that end a run.
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)

#: Torch's launcher forwards signals that the terminal or a scheduler has sent to all processes already: within these
#: seconds, two are one.
ECHO = 3.0

_NOTICE = b'\nSIGINT: the run ends after the running iteration and is saved; once more to leave at once\n'


class StopRequest(NamedTuple):
    """What ends a run: a signal, or a call of ``runner.stop``.

    Attributes:
        reason: what ``runner.stop`` was given, or the signal's name.
        signal: None where no signal came.
    """

    reason: str
    signal: signal.Signals | None = None


class StopSignals:
    """The signal handlers of a run, as a context; no handlers are installed outside the main thread.

    A handler only notes the signal. The runner counts its boundaries, the ends of training iterations and the places
    between two units, in ``boundaries``; where ``pending`` is set it asks there with `due` whether the run ends. A
    second SIGINT raises KeyboardInterrupt where the program is. A SIGTERM after another signal gives the process
    `END_WITHIN` seconds to leave, wherever it is stuck.

    Signals that are ignored stay ignored, as in a job that a shell has put into the background. A run inside another
    run (in a hook, say) passes its signal on when it is over, so that the outer one ends as well.

    Args:
        rank: of this process.
        world_size: how many processes have to stop at the same boundary.
    """

    def __init__(self, rank: int = 0, world_size: int = 1) -> None:
        self.pending = False  # read in every iteration
        self.boundaries = 0  # so far in this run; ranks that run the same workflow count alike
        self.received: signal.Signals | None = None
        self._requested: tuple[str, int] | None = None  # the reason, and the first boundary that can obey
        self._rank = rank
        self._pid = os.getpid()
        self._former: dict[signal.Signals, Any] = {}
        self._outer: StopSignals | None = None
        self._interrupted_at: float | None = None
        self._received_at = -math.inf
        self._echo = ECHO if dist.is_torchelastic_launched() else 0.0
        self._grace, self._has_failed = Grace(), False
        self._agreement: Agreement | None = None
        if world_size > 1:
            from runnerkit.distributed.agreement import Agreement

            self._agreement = Agreement(self, rank, world_size)

    def __enter__(self) -> StopSignals:
        if self._agreement is not None:
            self._agreement.start()
        if threading.current_thread() is threading.main_thread():
            for number in STOPPING:
                former = signal.getsignal(number)
                if former not in (None, signal.SIG_IGN):  # None: a handler not of Python's, which cannot be put back
                    self._former[number] = former
                    signal.signal(number, self._receive)
                    owner = getattr(former, '__self__', None)
                    self._outer = owner if isinstance(owner, StopSignals) else self._outer
        if self._outer is not None and self._outer.received is not None:
            self._note(self._outer.received)  # it has come just before this run began
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)
        self._grace.is_over = True
        if self._outer is not None and self.received is not None:
            self._outer._note(self.received)
        if self._agreement is not None:
            self._agreement.finish()

    @property
    def is_nested(self) -> bool:
        """Whether the run is inside another one, which then gets its signal as well."""
        return self._outer is not None

    @property
    def asked(self) -> StopRequest | None:
        """What this process has been asked: the signal that it has received first, else the first request."""
        if self.received is not None:
            return StopRequest(self.received.name, self.received)
        return None if self._requested is None else StopRequest(self._requested[0])

    def request(self, reason: str) -> None:
        """Ask for the end of the run, on all ranks, at the next boundary that all of them can still stop at.

        Where all ranks ask before the same boundary, that is the one. May be called from any thread.
        """
        self.pending = True  # first: from here on no boundary is passed without `due`
        if self._requested is None:
            self._requested = str(reason), self.boundaries + 1
        if self._agreement is not None:
            self._agreement.wake()

    def due(self) -> StopRequest | None:
        """What ends the run at the boundary that has just been counted; None if the run continues."""
        if self._agreement is None:
            return self.asked
        if (agreed := self._agreement.due()) is None:
            return None
        reason, number = agreed
        return StopRequest(reason, None if number is None else signal.Signals(number))

    def first_boundary(self) -> int:
        """The first boundary at which this rank can stop, now that ``pending`` is set."""
        passed = self.boundaries
        # In this order: a rank that has passed the boundary of its request has made the request before.
        return passed + 1 if self._requested is None else self._requested[1]

    def leave(self, has_failed: bool) -> None:
        """The loop is over. If the run has failed, one SIGTERM limits what is left, such as a save that may hang."""
        self._has_failed = has_failed

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            _receive_in_child(number)
            return
        if self._agreement is not None and self._agreement.failure is not None:
            signal.signal(number, self._former[signal.Signals(number)])
            os.kill(self._pid, number)
            return
        if number == signal.SIGINT:
            now = time.monotonic()
            if self._interrupted_at is None:
                self._interrupted_at = now
                if self._rank == 0:
                    with suppress(OSError):  # not through sys.stderr, which may be in the middle of a write
                        os.write(2, _NOTICE)
            elif now - self._interrupted_at >= self._echo:
                raise KeyboardInterrupt
        is_repeated = self.received is not None and time.monotonic() - self._received_at >= self._echo
        if number == signal.SIGTERM and (self._has_failed or is_repeated):
            self._grace(number)
        self._note(signal.Signals(number))

    def _note(self, number: signal.Signals) -> None:
        if number == signal.SIGINT and self._interrupted_at is None:  # in a run inside this one
            self._interrupted_at = time.monotonic()
        if self.received is None:
            self.received, self._received_at = number, time.monotonic()
            if self._agreement is None:
                self.pending = True


def _receive_in_child(number: int) -> None:
    """What a forked process does with inherited handlers: SIGTERM ends it, the other signals concern its parent."""
    if number == signal.SIGTERM:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
