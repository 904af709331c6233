"""How the tools end: with a truthful exit code, and one clear error instead of a stack of frames where that helps
nobody."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import FrameType, TracebackType

from runnerkit.utils.exceptions import one_line

USAGE, FAILURE = 2, 1
SIGNALLED = 128  # and the number of the signal, as a shell has it
INTERRUPTED = SIGNALLED + signal.SIGINT

_PACKAGE = Path(__file__).resolve().parent.parent

Main = Callable[[Sequence[str] | None], int]


class UsageError(Exception):
    """The command line asks for something that cannot be."""


def usage_checked(main: Callable[..., int]) -> Callable[..., int]:
    """Turn what ``main`` raises into an error on stderr and an exit code."""

    @wraps(main)
    def checked(argv: Sequence[str] | None = None) -> int:
        try:
            return main(argv)
        except UsageError as error:
            print(f'error: {error}', file=sys.stderr)
            return USAGE
        except KeyboardInterrupt:
            print('interrupted', file=sys.stderr)
            return INTERRUPTED
        except Exception as error:
            if os.environ.get('RUNNERKIT_TRACEBACK') or not is_ours(error):
                traceback.print_exc()
            logging.getLogger('runnerkit').debug('failed', exc_info=True)
            print(f'error: {one_line(error)}', file=sys.stderr)
            return FAILURE

    return checked


@contextmanager
def ignoring_repeated_signals(stopped: Callable[[], bool]) -> Iterator[None]:
    """Ignore SIGTERM and SIGUSR1 once a signal has stopped the run: until the process ends, not just in this context.

    A launcher sends SIGTERM to the other processes as soon as one has ended, and a scheduler repeats it: neither may
    cut off what comes after the run. If the run was not stopped, both do what they did before. SIGINT is not ignored.

    This is to surround the run and nothing before it: handlers of Python's do not run while C++ code waits, say for
    the other ranks to join, and SIGTERM has to end that.

    Args:
        stopped: whether a signal has stopped the run.
    """

    def receive(number: int, frame: FrameType | None) -> None:
        if not stopped():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    former = {}
    if threading.current_thread() is threading.main_thread():
        for name in ('SIGTERM', 'SIGUSR1'):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) == signal.SIG_DFL:
                former[number] = signal.signal(number, receive)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, signal.SIG_IGN if stopped() else handler)


def is_ours(error: BaseException) -> bool:
    """Whether our own code refused something, so that the message says it all.

    Where the user's code is on the way to the error it has a part in it, and the frames say which line.
    """
    chain: BaseException | None = error
    while chain is not None:
        if any(is_of_user(path) for path in files_of(chain.__traceback__)):
            return False
        chain = chain.__cause__
    files = files_of(error.__traceback__)
    return not files or not is_installed(files[-1])


def files_of(trace: TracebackType | None) -> list[str]:
    """The file of every frame between `checked` and where an exception was raised."""
    return [] if trace is None else [frame.f_code.co_filename for frame, _ in traceback.walk_tb(trace)]


def is_of_user(path: str) -> bool:
    """Whether ``path`` is neither ours, nor Python's, nor an installed package's."""
    ours = _PACKAGE in Path(path).parents
    return not (ours or is_installed(path) or path.startswith(('<', sys.base_prefix)))


def is_installed(path: str) -> bool:
    """Whether ``path`` lies in a folder of installed packages, and is not ours."""
    return 'site-packages' in path and _PACKAGE not in Path(path).parents
