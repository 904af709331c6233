"""The boundary at which all ranks of a run stop, agreed on in parallel to the training."""

from __future__ import annotations

import json
import threading
import time
from itertools import count
from typing import Any, Protocol

from torch.distributed import distributed_c10d

from runnerkit.distributed.launch import wait_for_key
from runnerkit.utils.exceptions import PeerFailed
from runnerkit.utils.torch_versions import second_connection

_POLL = 0.25  # seconds between two looks at the store
_PATIENCE = 20.0  # seconds for all ranks to answer; torchrun kills after 30 s
_NEVER = 1 << 62

#: The runs of this process, which all ranks count alike.
_runs = count()


class Signals(Protocol):
    """What this process has been asked, and how far it is; see `runnerkit.distributed.signals.StopSignals`."""

    pending: bool
    boundaries: int

    @property
    def asked(self) -> tuple[str, int | None] | None:
        """The reason, and the signal if one came."""

    def first_boundary(self) -> int:
        """The first boundary at which this rank can stop."""


class Agreement(threading.Thread):
    """Finds the boundary at which all ranks stop, through the process group's store and in parallel to the training.

    One rank asks. Every rank then offers the first boundary at which it can stop, and does not pass that one before
    rank 0 has named the largest offer. No rank can have passed that, however far apart the ranks are. A rank whose run
    is over offers no boundary: then the others complete their run, as if no rank had asked.

    Args:
        signals: what this process has been asked; knows its boundaries, and learns when some rank asks.
        rank: of this process.
        world_size: how many ranks there are.

    Attributes:
        failure: the store or a rank has not answered: the run cannot be stopped, and signals do what they would do
            without a run.
    """

    def __init__(self, signals: Signals, rank: int, world_size: int) -> None:
        super().__init__(name='runnerkit-stop', daemon=True)
        self.failure: PeerFailed | None = None
        self._signals = signals
        self._rank, self._world_size = rank, world_size
        self._key = f'runnerkit/stop/{next(_runs)}'
        self._store: Any = None
        self._woken, self._offered, self._settled = threading.Event(), threading.Event(), threading.Event()
        self._is_over = False
        self._offer = self._last = _NEVER
        self._agreed: tuple[str, int | None] | None = None

    def run(self) -> None:
        """Wait until some rank asks, or the run is over."""
        try:
            # A separate connection, so that waiting here blocks no other use of the store.
            self._store = second_connection(distributed_c10d._get_default_store())
            while not self._store.check([f'{self._key}/stop']):
                asked = self._signals.asked
                if asked is not None:
                    self._store.compare_set(f'{self._key}/stop', '', json.dumps(asked))
                elif self._is_over:
                    self._store.set(f'{self._key}/{self._rank}', str(_NEVER))
                    if self._rank == 0:
                        self._store.set(f'{self._key}/last', str(_NEVER))
                    return
                else:  # a handler must not wake this thread: what it interrupts may hold the lock for that
                    self._woken.wait(_POLL)
            self._settle()
        except Exception as error:
            self.failure = PeerFailed(f'the ranks cannot agree on when to stop, as one of them has gone: {error}')
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

    def due(self) -> tuple[str, int | None] | None:
        """The reason and the signal that end the run at this boundary, or None; waits for the other ranks where going
        on might be too far.
        """
        boundary = self._signals.boundaries
        self._offered.wait()
        if boundary >= self._offer:
            self._settled.wait()
        if self.failure is not None:
            raise self.failure
        return self._agreed if boundary >= self._last else None

    def _settle(self) -> None:
        self._agreed = tuple(json.loads(self._store.get(f'{self._key}/stop')))
        # In this order: a boundary that was passed without `due` is counted before `pending` is set.
        self._signals.pending = True
        self._offer = self._signals.first_boundary()
        self._offered.set()
        deadline = time.monotonic() + _PATIENCE
        self._store.set(f'{self._key}/{self._rank}', str(self._offer))
        if self._rank == 0:
            offers = [self._answer(str(rank), deadline) for rank in range(self._world_size)]
            self._store.set(f'{self._key}/last', str(max(offers)))
        self._last = self._answer('last', deadline + _POLL)

    def _answer(self, name: str, deadline: float) -> int:
        wait_for_key(self._store, f'{self._key}/{name}', deadline)
        return int(self._store.get(f'{self._key}/{name}'))
