"""What a study asks of whatever runs its trials."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from typing import NamedTuple

from runnerkit.registry import Registry
from runnerkit.search.job import Job, Report, Result
from runnerkit.utils.lazy import EntryPoints

_OF_PACKAGES = EntryPoints('runnerkit.executors')

#: Executors by name; of one that is not registered, the entry points of installed packages are asked.
EXECUTORS = Registry('executor', fallback=_OF_PACKAGES.load, fallback_names=_OF_PACKAGES.names)


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
