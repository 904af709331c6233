"""What a loader's worker does with signals: leave them to the process it works for."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import select
import signal
import sys
import threading
from collections.abc import Callable

#: How long a worker serves on after SIGTERM: as long as schedulers usually wait before they kill.
GRACE = 30.0


class OutlivingSignals:
    """A ``worker_init_fn`` that keeps a worker at work while its parent finishes an iteration and saves.

    Ctrl-C in a terminal reaches workers too, and a scheduler's or systemd's SIGTERM all processes of a job. A worker
    that died of it would end the run in the middle of an iteration. It goes when the loader sends it home, as soon as
    its parent is gone, or by SIGTERM: by one after ``GRACE`` seconds, by a second one at once.

    torch's own workers look for their parent every five seconds. So long, a forked one holds what the parent has held:
    the connections of a killed rank to the others, who wait in a collective and do not learn that it has gone. On Linux
    the system itself ends one that is stopped, or stuck in C++ with Python's lock.

    Args:
        worker_init: the function that would be called without this one.
    """

    def __init__(self, worker_init: Callable[[int], None] | None) -> None:
        self.worker_init = worker_init

    def __call__(self, worker_id: int) -> None:
        """Run in the worker ``worker_id``, before it makes its first sample."""
        outlive_signals()
        _die_with_parent()
        if self.worker_init is not None:
            self.worker_init(worker_id)


def outlive_signals(grace: float | None = None) -> None:
    """Let this process ignore SIGINT and SIGUSR1, and die of SIGTERM after ``grace`` seconds; ``GRACE`` by default."""
    for name in ('SIGINT', 'SIGUSR1'):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    # A thread waits, since a main thread that is stuck outside Python runs no handler of Python's.
    inbox, outbox = os.pipe()
    os.set_blocking(outbox, False)
    signal.set_wakeup_fd(outbox, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    threading.Thread(target=_await_end, args=(inbox, GRACE if grace is None else grace), daemon=True).start()


def _die_with_parent() -> None:
    """Let Linux kill this process with its parent: in fact with the thread that has forked it, so only if that was the
    main one, which lives as long as the parent."""
    if sys.platform == 'linux' and threading.main_thread().name == 'MainThread':
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)


def _await_end(inbox: int, grace: float) -> None:
    parent = multiprocessing.parent_process()
    ends = [] if parent is None else [parent.sentinel]  # readable when the parent is gone
    received: bytes = b''
    while received.count(signal.SIGTERM) < 2:
        patience = grace if signal.SIGTERM in received else None
        ready = select.select([inbox, *ends], [], [], patience)[0]
        if ready != [inbox]:
            break
        received += bytes(number for number in os.read(inbox, 64) if number == signal.SIGTERM)
    os._exit(0)
