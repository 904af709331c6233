"""Where trials run: in this process, in local processes, or on a Ray cluster."""

from runnerkit.search.executors.executor import EXECUTORS, Ended, Executor, SerialExecutor
from runnerkit.search.executors.local import LocalExecutor
from runnerkit.search.executors.ray import RayExecutor

__all__ = ['EXECUTORS', 'Ended', 'Executor', 'LocalExecutor', 'RayExecutor', 'SerialExecutor']
