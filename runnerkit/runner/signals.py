"""A run that is asked to stop by SIGTERM, SIGINT or SIGUSR1 (Slurm's warning) ends after an iteration, not within."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from itertools import count as counter
from types import FrameType
from typing import Any

from torch import distributed as dist
from torch.distributed import distributed_c10d

#: The signals that end a run, as far as this system has them.
STOPPING: tuple[signal.Signals, ...] = tuple(
    getattr(signal, name) for name in ('SIGTERM', 'SIGINT', 'SIGUSR1') if hasattr(signal, name)
)

#: Torch's launcher hands Ctrl-C on to processes that the terminal has told already: within these seconds it is one.
ECHO = 3.0

_NOTICE = b'\nSIGINT: the run ends after the running iteration and is saved; once more to leave at once\n'

logger = logging.getLogger('runnerkit')


class StopSignals:
    """The handlers for the time of a run, as a context; in any thread but the main one there are none.

    A handler only notes the signal. The runner asks at its boundaries what to do, if ``pending`` says that there is
    something to ask for. A second SIGINT raises KeyboardInterrupt where the program is.

    Signals that are ignored stay ignored, as in a job that a shell has put into the background. A run inside another
    run (a hook's, say) hands on what it got when it is over: then the outer one ends as well.

    Args:
        running: gives the running training iteration, from 0.
        rank: of this process.
        world_size: how many processes have to stop after the same iteration.
    """

    def __init__(self, running: Callable[[], int], rank: int = 0, world_size: int = 1) -> None:
        self.pending = False  # read in every iteration
        self.received: signal.Signals | None = None
        self._rank = rank
        self._pid = os.getpid()
        self._former: dict[signal.Signals, Any] = {}
        self._outer: StopSignals | None = None
        self._interrupted_at: float | None = None
        self._echo = ECHO if dist.is_torchelastic_launched() else 0.0
        self._agreement = None if world_size == 1 else Agreement(self, running, rank, world_size)

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
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)
        if self._outer is not None and self.received is not None:
            self._outer._note(self.received)
        if self._agreement is not None:
            self._agreement.finish()

    @property
    def is_nested(self) -> bool:
        """Whether the run is inside another one, which then hears of its signal."""
        return self._outer is not None

    def due(self, count: int) -> signal.Signals | None:
        """The signal that ends the run now, when ``count`` iterations are done; None if it goes on."""
        return self.received if self._agreement is None else self._agreement.due(count)

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
        self._note(signal.Signals(number))

    def _note(self, number: signal.Signals) -> None:
        if number == signal.SIGINT and self._interrupted_at is None:  # in a run inside this one
            self._interrupted_at = time.monotonic()
        if self.received is None:
            self.received = number
            self.pending = self._agreement is None


def _receive_in_child(number: int) -> None:
    """What a forked process does that has inherited the handlers: SIGTERM ends it, the others are its parent's."""
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
    """Finds the iteration after which all ranks stop, through the process group's store and beside the training.

    One rank asks. Every rank then offers the end of the iteration after its running one, and does not pass its own
    offer before rank 0 has said which is the largest. Nobody can be beyond that, however far apart the ranks are.
    A rank whose run is over offers no iteration: then the others end their run as well, as if nobody had asked.

    Args:
        signals: know the signal that this process got, if any, and are told when some rank asks.
        running: gives the running training iteration, from 0.
        rank: of this process.
        world_size: how many ranks there are.
    """

    def __init__(self, signals: StopSignals, running: Callable[[], int], rank: int, world_size: int) -> None:
        super().__init__(name='runnerkit-stop', daemon=True)
        self.failed = False  # signals then do what they would do without a run
        self._signals, self._running = signals, running
        self._rank, self._world_size = rank, world_size
        self._key = f'runnerkit/stop/{next(_runs)}'
        self._store: Any = None
        self._over, self._offered, self._settled = threading.Event(), threading.Event(), threading.Event()
        self._offer = self._last = _NEVER
        self._signal: signal.Signals | None = None

    def run(self) -> None:
        """Wait until some rank asks, or the run is over."""
        try:
            # A connection of its own, so that waiting here keeps nobody else from the store.
            default: Any = distributed_c10d._get_default_store()
            self._store = default.clone()
            while not self._store.check([f'{self._key}/signal']):
                received = self._signals.received
                if received is not None:
                    self._store.compare_set(f'{self._key}/signal', '', str(int(received)))
                elif self._over.wait(_POLL):
                    self._say(_NEVER)
                    return
            self._settle()
        except Exception as error:  # the store is gone, or another rank
            self.failed = True
            if not self._over.is_set():
                logger.warning('the ranks cannot agree on when to stop, a signal ends its own process only: %s', error)
        finally:
            self._offered.set()
            self._settled.set()

    def finish(self) -> None:
        """The run is over: let the others know if they ask."""
        self._over.set()
        self.join(timeout=8 * _POLL)

    def due(self, count: int) -> signal.Signals | None:
        """As `StopSignals.due`; waits for the others where going on might be too far."""
        self._offered.wait()
        if count < self._offer:
            return None
        self._settled.wait()
        return self._signal if count >= self._last else None

    def _settle(self) -> None:
        self._signal = signal.Signals(int(self._store.get(f'{self._key}/signal')))
        # In this order: a boundary that does not see it yet belongs to the iteration that is read next, or to the one
        # before, and the offer lies behind both.
        self._signals.pending = True
        self._offer = self._running() + 2
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

    def _say(self, count: int) -> None:
        self._store.set(f'{self._key}/{self._rank}', str(count))
        if self._rank == 0:
            self._store.set(f'{self._key}/last', str(count))

    def _wait_for(self, name: str, seconds: float) -> int:
        key = f'{self._key}/{name}'
        self._store.wait([key], timedelta(seconds=seconds))
        return int(self._store.get(key))
