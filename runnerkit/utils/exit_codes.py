"""The exit codes of all commands."""

from __future__ import annotations

import signal

FAILURE, USAGE, DIVERGED, SOME_FAILED = 1, 2, 3, 4
SIGNALLED = 128  # plus the number of the signal, as in a shell
INTERRUPTED = SIGNALLED + signal.SIGINT

#: What each code means; docs/reference/commands.md has the same table.
MEANINGS: dict[int, str] = {
    0: 'done',
    FAILURE: 'an error, which the last line names',
    USAGE: 'wrong usage: an unknown flag, a missing file, or a key of the config that is unknown',
    DIVERGED: 'the run has diverged: its weights are NaN or infinite, or `NonFiniteHook` has ended it',
    SOME_FAILED: 'all steps of a search are done, but some trials have failed',
    SIGNALLED: 'plus the number of a signal that has stopped it: 143 for SIGTERM, 130 for Ctrl-C',
}
