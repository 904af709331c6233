"""Each rank watches itself: a process whose run hangs is ended, and one whose run has failed ends in time."""

from __future__ import annotations

import faulthandler
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from torch import distributed as dist

from runnerkit.utils.ending import END_WITHIN, end_after, end_not, end_now, limit_exit, stderr
from runnerkit.utils.exceptions import PeerFailed, one_line

#: Seconds without an iteration after which a process is ended, as one that hangs.
HANG_AFTER = 1800.0

_LOOK = 0.5  # seconds between two looks at the heartbeat
_TO_BE_FIRST = 2.0  # seconds for a rank that has failed to end before those that have lost it: it is the cause
_TO_LOG = 5.0  # seconds for the stacks to reach the log

#: What torch's backends say when they have lost another rank.
_LOST = ('gloo', 'NCCL', 'Connection closed by peer', 'Connection reset by peer', 'Broken pipe')

#: Why a rank may have died without an error of Python's.
DIED = (
    "its stderr and its exit code in the launcher's summary say why. -9: it was killed, often for its memory. -6: it "
    'was aborted, by gloo if the ranks called different collectives, or the same one with tensors of different sizes. '
    '-11: it crashed. Other codes: it called os._exit'
)


class Watch:
    """Ends this process, as a context, when its run hangs, or has failed and does not leave in time.

    Each rank watches itself. When one has gone, the others lose their connections to it, and the launcher ends them.

    Args:
        logger: gets the stacks of a run that hangs.
        heartbeat: changes whenever the run moves; its first item is how many iterations have been done. None where a
            pause may be as long as it likes, such as in an evaluation. Called from a thread.
        failure: the error with which the run has failed, although the main thread may still do something about it;
            else None. Called from a thread.
        end_within: seconds within which this process ends after an error, an exit of the interpreter that begins
            within them included. A program that catches the error and continues for longer is not ended.
        hang_after: seconds for which ``heartbeat`` may stay as it is, three times as long in the first iteration, which
            may compile; None: for ever. Time for which the whole job is suspended does not count.

    Raises:
        ValueError: seconds that are not more than 0.
    """

    def __init__(
        self,
        logger: logging.Logger,
        heartbeat: Callable[[], tuple[Any, ...] | None] = lambda: None,
        failure: Callable[[], BaseException | None] = lambda: None,
        end_within: float = END_WITHIN,
        hang_after: float | None = HANG_AFTER,
    ) -> None:
        for name, value in (('end_within', end_within), ('hang_after', hang_after)):
            is_none = value is None and name == 'hang_after'
            if not is_none and (isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0):
                raise ValueError(f'{name} must be more than 0 seconds, but got {value!r}')
        self._logger, self._heartbeat, self._failure = logger, heartbeat, failure
        self._end_within, self._hang_after = end_within, math.inf if hang_after is None else hang_after
        self._thread = threading.Thread(target=self._run, name='runnerkit-watch', daemon=True)
        self._over = threading.Event()
        self._end_by: float | None = None  # on the monotonic clock, after an error
        self._former_handler: Any = None  # of SIGTERM

    def __enter__(self) -> Watch:
        if not faulthandler.is_enabled() and stderr() is sys.stderr:
            faulthandler.enable()  # so that a crash in C++ leaves a stack as well
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._limit()
            if threading.current_thread() is threading.main_thread():
                # Launchers end the other ranks as soon as one has gone; this one ends by itself, and says why.
                self._former_handler = signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if is_lost(error):
                error.add_note('Another rank has died or does not answer')
                self._over.wait(min(_TO_BE_FIRST, self._end_within / 4))

    def finish(self) -> None:
        """Watch no longer: the process group has been left."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._former_handler is not None:
            signal.signal(signal.SIGTERM, self._former_handler)
        if self._end_by is not None:
            end_not()  # the process may continue; its exit has its own limit
            limit_exit(self._end_by - time.monotonic())

    def _run(self) -> None:
        at, looks = None, 0  # counted, not measured: the whole job may be suspended
        while not self._over.wait(_LOOK):
            if self._failure() is not None:
                self._limit()
            former, at = at, self._heartbeat()
            looks = looks + 1 if at is not None and at == former else 0
            if looks * _LOOK >= self._hang_after * (1 if at is None or at[0] else 3):
                self._end_hanging(looks * _LOOK)

    def _limit(self) -> None:
        """Let this process be gone in time, whatever it is stuck in."""
        if self._end_by is None:
            self._end_by = time.monotonic() + self._end_within
            end_after(self._end_within)

    def _end_hanging(self, seconds: float) -> None:
        end_after(_TO_LOG)  # the disk of the log may be what hangs
        text = f'no iteration has been finished for {seconds:.0f} s (dist_params.hang_after={self._hang_after:g})'
        self._logger.error('Run failed: %s. The process is ended; its threads are at', text)
        for handler in self._logger.handlers:
            if isinstance(handler, logging.FileHandler) and handler.stream is not None:
                faulthandler.dump_traceback(handler.stream, all_threads=True)
        try:
            raise TimeoutError(text)
        except TimeoutError as error:
            record(error)
        end_now(text, 1)


def is_lost(error: BaseException) -> bool:
    """Whether an error is that of a rank that has lost another one, rather than its own."""
    if isinstance(error, (dist.DistError, PeerFailed)):
        return True
    return isinstance(error, RuntimeError) and any(sign in one_line(error) for sign in _LOST)


def record(error: BaseException) -> None:
    """Leave ``error`` for torchrun's summary, which else has no traceback; to be called while it is handled."""
    if os.environ.get('TORCHELASTIC_ERROR_FILE'):
        from torch.distributed.elastic.multiprocessing.errors import get_error_handler

        get_error_handler().record_exception(error)
