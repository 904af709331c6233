"""The end of a process that may be stuck anywhere: in Python, in C++, in the exit of the interpreter."""

from __future__ import annotations

import _thread
import atexit
import ctypes
import faulthandler
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

#: Seconds within which the other ranks end when one has died or raised an error.
END_WITHIN = 30.0

#: How much later than asked the system itself ends a process, if faulthandler does not, in seconds.
_MARGIN = 2

#: faulthandler's timer is not made for several threads.
_timer = threading.Lock()

#: When an exit of the interpreter that has begun before must be over, on the monotonic clock; None: never.
_exit_by: float | None = None

#: The thread that waits for the end of the main thread.
_waiter: threading.Thread | None = None


def end_after(seconds: float) -> None:
    """End this process after so many seconds, whatever it is stuck in: with exit code 1 and all stacks on stderr.

    The timer needs neither Python's lock nor the interpreter. A second call replaces the first one.
    """
    with _timer:
        faulthandler.dump_traceback_later(max(seconds, 0.01), exit=True, file=stderr() or 2)


def end_not() -> None:
    """Take `end_after` back."""
    with _timer:
        faulthandler.cancel_dump_traceback_later()


@contextmanager
def ending_after(seconds: float, exit_within: float) -> Iterator[None]:
    """End this process, if what is inside takes longer, with exit code 1 and all stacks on stderr.

    What is inside must let other threads run. faulthandler has one timer only, which may be the user's.

    Args:
        seconds: how long it may take.
        exit_within: after an error in it, how long the exit of the interpreter may take then.
    """
    over = threading.Event()
    threading.Thread(target=_end_unless, args=(over, seconds), name='runnerkit-end', daemon=True).start()
    try:
        with exit_limited(exit_within):
            yield
    finally:
        over.set()


def _end_unless(over: threading.Event, seconds: float) -> None:
    if not over.wait(seconds):
        end_now(f'This has taken more than {seconds:g} s', 1)


def end_now(why: str, code: int) -> NoReturn:
    """End this process with all stacks on stderr."""
    if (file := stderr()) is not None:
        print(f'{why}; the process is ended at\n', file=file, flush=True)
        faulthandler.dump_traceback(file, all_threads=True)
    os._exit(code)


@contextmanager
def exit_limited(seconds: float) -> Iterator[None]:
    """After an error in what is inside, `limit_exit`; without one, take an earlier limit back."""
    try:
        yield
    except BaseException:
        limit_exit(seconds)
        raise
    limit_exit(None)


def limit_exit(seconds: float | None) -> None:
    """End this process as `end_after` does if it is in the exit of the interpreter so many seconds from now.

    The exit includes threads that Python waits for, functions registered with atexit, and the destructors of C++. An
    exit that begins later has no limit: the program has caught the error and gone on.

    Args:
        seconds: None: take an earlier limit back.
    """
    global _exit_by, _waiter
    if seconds is not None and _exit_by is None:
        # Python waits for its threads before it calls what is registered with atexit; but then the main thread counts
        # as ended.
        if _waiter is None or not _waiter.is_alive():  # as in a forked process
            _waiter = threading.Thread(target=_await_exit, name='runnerkit-exit', daemon=True)
            _waiter.start()
        atexit.unregister(_begin_exit)
        atexit.register(_begin_exit)
    _exit_by = None if seconds is None else time.monotonic() + seconds


def _await_exit() -> None:
    threading.main_thread().join()
    _begin_exit()


def _begin_exit() -> None:
    global _exit_by
    until, _exit_by = _exit_by, None
    if until is None or (seconds := until - time.monotonic()) <= 0:
        return
    end_after(seconds)
    # The interpreter ends faulthandler's timer before the last destructors of C++ run.
    _exit_by_the_system(math.ceil(seconds) + _MARGIN)


class _Event(ctypes.Structure):
    """C's ``struct sigevent`` on Linux: a timer sends this process a signal."""

    _fields_ = (('value', ctypes.c_void_p), ('signal', ctypes.c_int), ('rest', ctypes.c_char * 52))


def _exit_by_the_system(seconds: int) -> None:
    """Let the system end this process with exit code 1: SIGHUP is signal 1, which ``_exit`` gets as the exit code.

    SIGALRM would end it with -14, and so does where there is no such timer (macOS; glibc before 2.34 has it elsewhere).
    """
    libc = ctypes.CDLL(None)
    event, timer, spec = _Event(signal=signal.SIGHUP), ctypes.c_void_p(), (ctypes.c_long * 4)(0, 0, seconds, 0)
    if (
        sys.platform == 'linux'
        and hasattr(libc, 'timer_create')
        and libc.timer_create(time.CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)) == 0
    ):
        libc.signal(signal.SIGHUP, ctypes.cast(getattr(libc, '_exit'), ctypes.c_void_p))  # noqa: B009
        libc.timer_settime(timer, 0, spec, None)
    elif signal.getsignal(signal.SIGALRM) == signal.SIG_DFL:
        signal.alarm(seconds)


def stderr() -> Any:
    """What faulthandler can write to: a file of the system; None if there is none."""
    for stream in (sys.stderr, sys.__stderr__):
        with suppress(AttributeError, OSError, ValueError):
            if stream.fileno() >= 0:  # type: ignore[union-attr]
                return stream
    return None


class Grace:
    """A handler of signals that gives the process some seconds to leave, and ends it then with the signal's exit code.

    Args:
        seconds: how long it gets.

    Attributes:
        is_over: whether to let the process continue.
    """

    def __init__(self, seconds: float = END_WITHIN) -> None:
        self.seconds, self.is_over, self._has_begun = seconds, False, False

    def __call__(self, number: int, frame: FrameType | None = None) -> None:
        """A signal has come; the first one counts."""
        if not self._has_begun:
            self._has_begun = True
            _thread.start_new_thread(self._end, (number,))  # threading has locks that the handler may have interrupted

    def _end(self, number: int) -> None:
        time.sleep(self.seconds)
        if self.is_over:
            return
        name = signal.Signals(number).name
        end_now(f'{name}: the process has not left within {self.seconds:g} s', 128 + number)
