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
    """Whether our own code refused something (the message says it all), rather than the user's or a library's
    failed."""
    chain: BaseException | None = error
    while chain is not None:
        origin = innermost_file(chain.__traceback__)
        if origin is not None and not is_of_package_or_stdlib(origin):
            return False
        chain = chain.__cause__
    return True


def innermost_file(trace: TracebackType | None) -> Path | None:
    """The file in which an exception was raised."""
    if trace is None:
        return None
    while trace.tb_next is not None:
        trace = trace.tb_next
    return Path(trace.tb_frame.f_code.co_filename)


def is_of_package_or_stdlib(path: Path) -> bool:
    """Whether ``path`` is a file of runnerkit or of Python itself (what our calls raise there is about what they were
    given)."""
    text = str(path)
    return (
        _PACKAGE in path.parents
        or text.startswith('<')
        or (text.startswith(sys.base_prefix) and 'site-packages' not in text)
    )
