"""Where the time of a command goes: ``RUNNERKIT_TRACE_START=1 runnerkit train …`` prints a line at each moment."""

from __future__ import annotations

import os
import sys
import time

from runnerkit.hooks.hook import Hook, RunnerView


def tell(moment: str) -> None:
    """Print ``moment``, with the seconds of CPU and of the clock since this process began; children that have ended
    count in the former."""
    used, age = sum(os.times()[:4]), time.time() - _BEGAN
    print(f'trace {used:7.2f} s CPU {age:7.2f} s  {moment}', file=sys.stderr, flush=True)


def _beginning() -> float:
    """When this process began, in seconds since 1970; Linux tells it, elsewhere it is now."""
    try:
        with open('/proc/self/stat', encoding='utf-8') as file:
            ticks = int(file.read().rpartition(')')[2].split()[19])
    except OSError:
        return time.time()
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf('SC_CLK_TCK')


_BEGAN = _beginning()


class TraceHook(Hook):
    """Prints the moments of a run."""

    def before_run(self, runner: RunnerView) -> None:
        """All stages have built what they build."""
        tell('everything is built')

    def before_train_iter(self, runner: RunnerView) -> None:
        """A batch is there."""
        if runner.inner_iter == 0:
            tell(f'first batch of epoch {runner.epoch + 1}')

    def after_train_epoch(self, runner: RunnerView) -> None:
        """Evaluated and saved."""
        tell(f'end of epoch {runner.epoch + 1}')

    def after_run(self, runner: RunnerView) -> None:
        """Nothing is left but the report."""
        tell('end of the run')
