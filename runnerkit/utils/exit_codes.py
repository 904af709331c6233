"""The exit codes of all commands."""

from __future__ import annotations

import signal

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
