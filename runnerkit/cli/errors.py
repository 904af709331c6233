"""Exit codes of the tools, and one clear message instead of a traceback where that would not help."""

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
from itertools import pairwise
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from runnerkit.config.origin import PreflightError
from runnerkit.utils.ending import FAILURE, USAGE, CommandLineExit, Grace, code_of
from runnerkit.utils.exceptions import ToldByFirstRank, one_line
from runnerkit.utils.logging import harmless_warnings, print_err
from runnerkit.utils.suggest import suggestion

_PACKAGE = Path(__file__).resolve().parent.parent

#: The file whose calls run config files.
_RUNS_CONFIGS = str(_PACKAGE / 'config' / 'parse.py')

#: The signals that are ignored since a run has ended.
_postponed: dict[int, Grace] = {}


class UsageError(Exception):
    """The command line is wrong."""


def check_extension(flag: str, path: str, extensions: Sequence[str], what: str) -> None:
    """Check the extension of a file to write, before torch is imported."""
    extension = os.path.splitext(path)[1].lower()
    if extension not in extensions:
        hint = suggestion(extension, extensions)
        raise UsageError(f'{flag} {path}: {what} as {", ".join(extensions)}{hint}')


def check_writable(flag: str, path: str) -> None:
    """Check that a file can be written to ``path``, before the work that leads to it."""
    folder = os.path.dirname(path) or '.'
    if not os.path.isdir(folder):
        raise UsageError(f'{flag} {path}: no such folder: {folder}')
    if os.path.isdir(path):
        raise UsageError(f'{flag} {path} is a folder: give a file in it')
    place = path if os.path.exists(path) else folder
    if not os.access(place, os.W_OK):
        raise UsageError(f'{flag} {path}: {place} is not writable: give another path')


@contextmanager
def wrong_usage(*kinds: type[Exception], of: str = '') -> Iterator[None]:
    """Turn errors of these kinds into a `UsageError` with the same message, unless they come from the user's code."""
    try:
        yield
    except kinds as error:
        if not is_self_explanatory(error):
            raise
        raise UsageError(f'{of}{text_of(error)}') from error


def text_of(error: BaseException) -> str:
    """What the commands print of an error: one line, but for those with a list."""
    if isinstance(error, PreflightError):
        return str(error)
    text, name = one_line(error), type(error).__name__
    says_why = isinstance(error, Exception) or isinstance(getattr(error, 'code', None), str) or text.startswith(name)
    return text if says_why else f'{name}: {text}'


def check_one_process(prog: str) -> None:
    """Refuse to run ``prog`` in several processes: each would do the same, and none knows of the others."""
    if (count := _world_size()) > 1:
        raise UsageError(
            f'{prog} works in one process, but torchrun has started {count} (WORLD_SIZE={count}): call it without '
            'torchrun'
        )


def _world_size() -> int:
    """How many processes the launcher has started, as the environment has it."""
    count = os.environ.get('WORLD_SIZE', '1')
    return int(count) if count.isdigit() else 1


def usage_checked(main: Callable[..., int | None], read: Callable[..., Any] | None = None) -> Callable[..., int]:
    """Turn errors of ``main``, and of ``read``, which makes its argument of ``argv``, into messages and exit codes."""

    @wraps(main)
    @harmless_warnings()
    def checked(argv: Sequence[str] | None = None, **kwargs: Any) -> int:
        try:
            return (main(argv, **kwargs) if read is None else main(read(argv, **kwargs))) or 0
        except CommandLineExit as error:
            if error.code:
                leave_for_torchrun(error)
            raise SystemExit(error.code) from None  # no way out for a run whose code has called this command
        except UsageError as error:
            print_error(str(error))
            leave_for_torchrun(error)
            return USAGE
        except KeyboardInterrupt as error:
            print_err('interrupted')
            return code_of(error)
        except ToldByFirstRank as error:
            print_err('error: rank 0 has failed, and says why')
            leave_for_torchrun(error)  # whose summary calls the rank that ends first the cause
            return FAILURE
        except BaseException as error:  # a user's sys.exit as well
            if os.environ.get('RUNNERKIT_TRACEBACK') or not is_self_explanatory(error):
                show_traceback(error)
            logging.getLogger('runnerkit').debug('failed', exc_info=True)
            print_error(text_of(error))
            leave_for_torchrun(error)
            return code_of(error)
        finally:
            _obey_signals()

    return checked


def print_error(message: str) -> None:
    """Print ``message`` on stderr, and before it the place of the page that explains it, if one does."""
    from runnerkit.cli.troubleshooting import section_about

    if place := section_about(message):
        print_err(f'help: {place}')
    print_err(f'error: {message}')


def leave_for_torchrun(error: BaseException) -> None:
    """Leave the error that is being handled where torchrun looks for it: its summary has the traceback then, unless it
    is only that of a rank that has lost another one."""
    if os.environ.get('TORCHELASTIC_ERROR_FILE'):  # so torch is there, and is imported in any case
        from runnerkit.distributed.watch import is_lost, record

        if not is_lost(error):
            record(error)


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
        ends_with_others = _world_size() > 1
        raise
    finally:
        for number, handler in former.items():
            if stopped() or ends_with_others:
                _postponed[number] = grace = Grace()
                signal.signal(number, grace if number == signal.SIGTERM else signal.SIG_IGN)
            else:
                signal.signal(number, handler)


def _obey_signals() -> None:
    """Let signals that were ignored end this process again, also where it is stuck in its exit."""
    while _postponed:
        number, grace = _postponed.popitem()
        grace.is_over = True
        signal.signal(number, signal.SIG_DFL)


def is_self_explanatory(error: BaseException) -> bool:
    """Whether the error's message is enough: runnerkit raised it, or it has a note that says where to look.

    If the user's code is in the traceback, the error may be there, and the traceback shows the line. Of an error in a
    config file, the message names the line.
    """
    chain: BaseException | None = error
    while chain is not None:
        files = files_of(chain.__traceback__)
        if any(is_of_user(path) and before != _RUNS_CONFIGS for before, path in pairwise(['', *files])):
            return False
        chain = chain.__cause__
    files = files_of(error.__traceback__)
    return not files or not is_installed(files[-1]) or bool(getattr(error, '__notes__', ()))


def show_traceback(error: BaseException) -> None:
    """Print the traceback on stderr, from the first line of the user's code on; all of it where there is none, or if
    RUNNERKIT_TRACEBACK is set."""
    shown = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = None if os.environ.get('RUNNERKIT_TRACEBACK') else shown
    while part is not None:
        first = next((i for i, frame in enumerate(part.stack) if is_of_user(frame.filename)), None)
        if first is not None:
            del part.stack[:first]
            shown = part  # what comes of it is the message's
            break
        part = part.__cause__
    print_err(''.join(shown.format()).removesuffix('\n'))


def files_of(trace: TracebackType | None) -> list[str]:
    """The files of all frames of a traceback."""
    return [] if trace is None else [frame.f_code.co_filename for frame, _ in traceback.walk_tb(trace)]


def is_of_user(path: str) -> bool:
    """Whether ``path`` belongs neither to runnerkit, nor to Python, nor to an installed package."""
    ours = _PACKAGE in Path(path).parents
    is_compiled = path.endswith('.pyx')  # of numpy, for one; it has no folder
    return not (ours or is_installed(path) or is_compiled or path.startswith(('<', sys.base_prefix)))


def is_installed(path: str) -> bool:
    """Whether ``path`` belongs to an installed package other than runnerkit."""
    return 'site-packages' in path and _PACKAGE not in Path(path).parents
