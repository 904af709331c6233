"""The exit codes of all commands."""

from __future__ import annotations

import signal

FAILURE, USAGE, DIFFERENT, SOME_FAILED, DIVERGED = 1, 2, 3, 4, 5
SIGNALLED = 128  # plus the number of the signal, as in a shell
INTERRUPTED = SIGNALLED + signal.SIGINT

#: What each code means; docs/terminal.md has the same table.
MEANINGS: dict[int, str] = {
    0: 'done',
    FAILURE: 'an error, which the last line names',
    USAGE: 'wrong usage: an unknown flag, a missing file, or a key of the config that is unknown',
    DIFFERENT: 'what was compared is different: a run and its replay, or two runs',
    SOME_FAILED: 'all steps of a search are done, but some trials have failed',
    DIVERGED: 'the run has diverged: its weights are NaN or infinite, or `NonFiniteHook` has ended it',
    SIGNALLED: 'plus the number of a signal that has stopped it: 143 for SIGTERM, 130 for Ctrl-C',
}
