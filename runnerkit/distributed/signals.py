"""Stopping a run at a boundary, on all ranks at the same one: because of a signal (SIGTERM, SIGINT, or SIGUSR1, which
is Slurm's warning), or because a hook of some rank asks for it."""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import threading
import time
from contextlib import suppress
from itertools import count as counter
from types import FrameType
from typing import Any, NamedTuple

from torch import distributed as dist
from torch.distributed import distributed_c10d

from runnerkit.distributed.watch import failed_rank
from runnerkit.utils.ending import Grace
from runnerkit.utils.exceptions import PeerFailed

#: The signals that end a run.
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)

#: Torch's launcher forwards signals that the terminal or a scheduler has sent to all processes already: within these
#: seconds, two are one.
ECHO = 3.0

_NOTICE = b'\nSIGINT: the run ends after the running iteration and is saved; once more to leave at once\n'

logger = logging.getLogger('runnerkit')


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
        self._agreement = None if world_size == 1 else Agreement(self, rank, world_size)

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
        return self.asked if self._agreement is None else self._agreement.due()

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
        if self._agreement is not None and self._agreement.failed:
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


# --- several processes -----------------------------------------------------------------------------------------------

_POLL = 0.25  # seconds between two looks at the store
_PATIENCE = 60.0  # seconds for all ranks to answer
_NEVER = 1 << 62

#: The runs of this process, which all ranks count alike.
_runs = counter()


class Agreement(threading.Thread):
    """Finds the boundary at which all ranks stop, through the process group's store and in parallel to the training.

    One rank asks. Every rank then offers the first boundary at which it can stop, and does not pass that one before
    rank 0 has told which offer is the largest. No rank can have passed that, however far apart the ranks are. A rank
    whose run is over offers no boundary: then the others complete their run, as if no rank had asked.

    Args:
        signals: what this process has been asked; knows its boundaries, and learns when some rank asks.
        rank: of this process.
        world_size: how many ranks there are.
    """

    def __init__(self, signals: StopSignals, rank: int, world_size: int) -> None:
        super().__init__(name='runnerkit-stop', daemon=True)
        self.failed = False  # then every rank stops by itself, and signals do what they would do without a run
        self._signals = signals
        self._rank, self._world_size = rank, world_size
        self._key = f'runnerkit/stop/{next(_runs)}'
        self._store: Any = None
        self._woken, self._offered, self._settled = threading.Event(), threading.Event(), threading.Event()
        self._is_over = False
        self._offer = self._last = _NEVER
        self._agreed: StopRequest | None = None
        self._lost: PeerFailed | None = None

    def run(self) -> None:
        """Wait until some rank asks, or the run is over."""
        try:
            # A separate connection, so that waiting here blocks no other use of the store.
            default: Any = distributed_c10d._get_default_store()
            self._store = default.clone()
            while not self._store.check([f'{self._key}/stop']):
                asked = self._signals.asked
                if asked is not None:
                    self._store.compare_set(f'{self._key}/stop', '', json.dumps(asked))
                elif self._is_over:
                    self._say(_NEVER)
                    return
                else:  # a handler must not wake this thread: what it interrupts may hold the lock for that
                    self._woken.wait(_POLL)
            self._settle()
        except PeerFailed as error:
            self._lost, self.failed, self._signals.pending = error, True, True
        except Exception as error:  # the store is gone, or another rank does not answer
            self.failed = True
            if not self._is_over:
                logger.warning('the ranks cannot agree on when to stop, each one stops by itself: %s', error)
            self._signals.pending = self._signals.asked is not None
        finally:
            self._offered.set()
            self._settled.set()

    def wake(self) -> None:
        """This process has a request: look at once."""
        self._woken.set()

    def finish(self) -> None:
        """The run is over: let the others know if they ask."""
        self._is_over = True
        self._woken.set()
        self.join(timeout=8 * _POLL)

    def due(self) -> StopRequest | None:
        """As `StopSignals.due`; waits for the other ranks where going on might be too far.

        Raises:
            PeerFailed: another rank has died or failed meanwhile, so that there will be no answer.
        """
        boundary = self._signals.boundaries
        self._offered.wait()
        if boundary >= self._offer:
            self._settled.wait()
        if self._lost is not None:
            raise self._lost
        if self.failed:
            return self._signals.asked
        return self._agreed if boundary >= self._last else None

    def _settle(self) -> None:
        reason, number = json.loads(self._store.get(f'{self._key}/stop'))
        self._agreed = StopRequest(reason, None if number is None else signal.Signals(number))
        # In this order: a boundary that was passed without `due` is counted before `pending` is set.
        self._signals.pending = True
        self._offer = self._signals.first_boundary()
        self._offered.set()
        self._store.set(f'{self._key}/{self._rank}', str(self._offer))
        if self._rank == 0:
            try:
                last = max(self._wait_for(str(rank), _PATIENCE) for rank in range(self._world_size))
            except Exception:
                self._say(_NEVER)
                raise
            self._store.set(f'{self._key}/last', str(last))
        self._last = self._wait_for('last', 2 * _PATIENCE)

    def _say(self, boundary: int) -> None:
        self._store.set(f'{self._key}/{self._rank}', str(boundary))
        if self._rank == 0:
            self._store.set(f'{self._key}/last', str(boundary))

    def _wait_for(self, name: str, seconds: float) -> int:
        key, deadline = f'{self._key}/{name}', time.monotonic() + seconds
        while not self._store.check([key]):  # a wait of the store would keep this thread, and tell of its time-outs
            lost = failed_rank()
            if lost is not None:
                raise lost
            if time.monotonic() > deadline:
                raise TimeoutError(f'no answer within {seconds:g} s')
            time.sleep(_POLL / 5)
        return int(self._store.get(key))
