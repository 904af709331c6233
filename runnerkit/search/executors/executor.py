"""What a study asks of whatever runs its trials, and the simplest: this process, one after another."""

from __future__ import annotations

import os
from abc import ABCMeta, abstractmethod
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from runnerkit.registry import Registry
from runnerkit.search.job import Job, Report, Result, run_job
from runnerkit.utils.lazy import EntryPoints
from runnerkit.utils.small_files import open_own

_OF_PACKAGES = EntryPoints('runnerkit.executors')

#: Executors by name; of one that is not registered, the entry points of installed packages are asked.
EXECUTORS = Registry('executor', fallback=_OF_PACKAGES.load, fallback_names=_OF_PACKAGES.names)

#: What a trial prints, in its work dir.
OUTPUT = 'output.log'


class Ended(NamedTuple):
    """A job that has ended, and how."""

    job: Job
    result: Result


class Executor(metaclass=ABCMeta):
    """Runs jobs. It is a context: on leaving it, no process of a job is left.

    Attributes:
        slots: how many jobs run at once.
        shares_signals: whether a signal that stops a job is one to the study: the job runs in its process.
    """

    slots: int = 1
    shares_signals: bool = False

    @abstractmethod
    def start(self, job: Job, report: Report) -> None:
        """Begin a job. `wait` calls ``report``, or this method, in this process and thread."""

    @abstractmethod
    def wait(self, seconds: float) -> list[Ended]:
        """The jobs that have ended since the last call; waits so long for the first one."""

    @property
    @abstractmethod
    def running(self) -> int:
        """How many jobs have begun and have not been returned by `wait`."""

    def stop(self) -> None:  # noqa: B027  # what runs in this process has got the signal itself
        """Ask the running jobs to save and end: they end as ``'stopped'``."""

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *error: object) -> None:  # noqa: B027
        """Leave no process behind."""


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
