"""Trials one after another in this process."""

from __future__ import annotations

import os
from contextlib import redirect_stderr, redirect_stdout

from runnerkit.search.executors.executor import EXECUTORS, Ended, Executor
from runnerkit.search.job import Job, Report, run_job
from runnerkit.utils.small_files import open_own

#: What a trial prints, in its work dir.
OUTPUT = 'output.log'


@EXECUTORS.register_module('Serial')
class SerialExecutor(Executor):
    """Runs each job at once in this process. A crash of the process ends the study as well; it can be continued.

    Args:
        quiet: whether what trials print goes to ``output.log`` in their folders.
    """

    shares_signals = True

    def __init__(self, quiet: bool = True) -> None:
        self.quiet = quiet
        self._ended: list[Ended] = []

    def start(self, job: Job, report: Report) -> None:
        """Run the whole job."""
        if not self.quiet:
            self._ended.append(Ended(job, run_job(job, report)))
            return
        os.makedirs(job.work_dir, exist_ok=True)
        path = os.path.join(os.path.dirname(job.work_dir), OUTPUT)
        with open_own(path) as file, redirect_stdout(file), redirect_stderr(file):
            self._ended.append(Ended(job, run_job(job, report)))

    def wait(self, seconds: float) -> list[Ended]:
        """What has ended."""
        ended, self._ended = self._ended, []
        return ended

    @property
    def running(self) -> int:
        """Jobs that have run, until `wait` has returned them."""
        return len(self._ended)
