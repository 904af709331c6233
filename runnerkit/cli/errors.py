"""How the tools end: with a truthful exit code, and one clear error instead of a stack of frames where that helps
nobody."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from types import TracebackType

from runnerkit.utils.exceptions import one_line

USAGE, FAILURE, INTERRUPTED = 2, 1, 130

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
