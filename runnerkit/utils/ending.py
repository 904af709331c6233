"""How a process ends: the exit codes of all commands, signals, and the end of one that may be stuck anywhere."""

from __future__ import annotations

import _thread
import atexit
import faulthandler
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

from runnerkit.utils.exceptions import NonFiniteError

FAILURE, USAGE, DIFFERENT, SOME_FAILED, DIVERGED = 1, 2, 3, 4, 5
SIGNALLED = 128  # plus the number of the signal, as in a shell
INTERRUPTED = SIGNALLED + signal.SIGINT

#: What each code means; docs/reference/commands.md has the same table.
MEANINGS: dict[int, str] = {
    0: 'done',
    FAILURE: 'an error, which the last line names',
    USAGE: 'wrong usage: an unknown flag, a missing file, or an error in the config',
    DIFFERENT: 'what was compared is different: a run and its replay, or two runs',
    SOME_FAILED: 'all steps of a search are done, but some trials have failed',
    DIVERGED: 'the run has diverged: its weights are NaN or infinite, or `NonFiniteHook` has ended it',
    SIGNALLED: 'plus the number of a signal that has stopped it: 143 for SIGTERM, 130 for Ctrl-C',
}

#: What ends a run, the outcome, and the exit code; docs/reference/commands.md has the same table.
ENDINGS: tuple[tuple[str, str, str], ...] = (
    ('its length, or the end of a stream', 'completed', '0'),
    ('`runner.stop`, early stopping, `--stop-after`, `runnerkit ctl stop`', 'stopped', '0'),
    ('SIGTERM, SIGUSR1, or the first Ctrl-C', 'stopped', '128 + the number of the signal'),
    ('weights that are NaN or infinite at the end', 'diverged', '5; after a signal 128 + its number'),
    ('KeyboardInterrupt, as of a second Ctrl-C', 'interrupted', '130'),
    ('NonFiniteError, as of `NonFiniteHook`', 'failed', '5'),
    ('SystemExit, as of `sys.exit`', 'failed', 'its own; 1 for 0, None, a text or a multiple of 256'),
    ('any other exception, also one that is no `Exception`', 'failed', '1'),
    ('an exception on another rank', 'failed', '1'),
)

#: The codes of exceptions; the first class that fits decides.
_OF_EXCEPTIONS: tuple[tuple[type[BaseException], int], ...] = (
    (NonFiniteError, DIVERGED),
    (KeyboardInterrupt, INTERRUPTED),
    (BaseException, FAILURE),
)


class UsageError(Exception):
    """The command line is wrong."""


class CommandLineExit(SystemExit):
    """Ends a command that has done what its command line asks, such as ``--help``; not an error of a run."""


def code_of(error: BaseException) -> int:
    """The exit code of a command that ``error`` ends; never 0."""
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return error.code % 256 or FAILURE  # the system keeps the last byte
    return next(code for kind, code in _OF_EXCEPTIONS if isinstance(error, kind))


#: Seconds within which a process ends after its run has failed.
END_WITHIN = 30.0

#: How much later than asked the system itself ends a process, if faulthandler does not, in seconds.
_MARGIN = 2


def end_after(seconds: float) -> None:
    """End this process after so many seconds, whatever it is stuck in: with exit code 1 and all stacks on stderr.

    faulthandler's timer needs neither Python's lock nor a working interpreter. Code that runs after the interpreter,
    such as destructors of C++, is ended by SIGALRM, unless the program handles it.
    """
    faulthandler.dump_traceback_later(max(seconds, 0.01), exit=True, file=stderr() or 2)
    _alarm(math.ceil(max(seconds, 0.0)) + _MARGIN)


def end_not() -> None:
    """Take `end_after` back."""
    faulthandler.cancel_dump_traceback_later()
    _alarm(0)


def _alarm(seconds: int) -> None:
    if signal.getsignal(signal.SIGALRM) == signal.SIG_DFL:
        signal.alarm(seconds)


def limit_exit(seconds: float) -> None:
    """End this process, as `end_after` does, if it is in the exit of the interpreter so many seconds from now.

    The exit includes threads that Python waits for, functions registered with atexit, and the destructors of C++. An
    exit that begins later has no limit: the program has caught the error and continued.
    """
    until = time.monotonic() + seconds

    def begin() -> None:
        if (left := until - time.monotonic()) > 0:
            end_after(left)

    def await_exit() -> None:
        threading.main_thread().join()
        begin()

    # Python waits for its threads before it calls what is registered; but then the main thread counts as ended.
    threading.Thread(target=await_exit, name='runnerkit-exit', daemon=True).start()
    atexit.register(begin)


def end_now(why: str, code: int) -> NoReturn:
    """End this process with all stacks on stderr."""
    if (file := stderr()) is not None:
        print(f'{why}; the process is ended at\n', file=file, flush=True)
        faulthandler.dump_traceback(file, all_threads=True)
    os._exit(code)


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
        if not self.is_over:
            name = signal.Signals(number).name
            end_now(f'{name}: the process has not left within {self.seconds:g} s', 128 + number)


# --- signals after a run ----------------------------------------------------------------------------------------------

#: The signals that are ignored since a run has ended.
_postponed: dict[int, Grace] = {}


@contextmanager
def ignoring_repeated_signals(stopped: Callable[[], bool]) -> Iterator[None]:
    """Ignore SIGTERM and SIGUSR1 after a signal has stopped the run, until the command has its exit code.

    A launcher sends SIGTERM to the other processes as soon as one has ended, and a scheduler repeats it. Neither may
    interrupt what follows the run, which may take `END_WITHIN` more seconds after SIGTERM. It is the same after an
    error on one of several ranks: each of them ends by itself, and says why. Otherwise both signals keep their effect.
    SIGINT is not ignored.

    Use this context for the run only, not for what precedes it: Python handlers are not called while C++ code waits,
    for example for other ranks to join, and SIGTERM must end that wait.
    """

    def receive(number: int, frame: FrameType | None) -> None:
        if not stopped():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    former = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGUSR1):
            if signal.getsignal(number) == signal.SIG_DFL:
                former[number] = signal.signal(number, receive)
    ends_with_others = False
    try:
        yield
    except BaseException:
        ends_with_others = world_size() > 1
        raise
    finally:
        for number, handler in former.items():
            if stopped() or ends_with_others:
                _postponed[number] = grace = Grace()
                signal.signal(number, grace if number == signal.SIGTERM else signal.SIG_IGN)
            else:
                signal.signal(number, handler)


def obey_signals() -> None:
    """Let signals that were ignored end this process again, also where it is stuck in its exit."""
    while _postponed:
        number, grace = _postponed.popitem()
        grace.is_over = True
        signal.signal(number, signal.SIG_DFL)


def world_size() -> int:
    """How many processes the launcher has started, as the environment has it."""
    count = os.environ.get('WORLD_SIZE', '1')
    return int(count) if count.isdigit() else 1
