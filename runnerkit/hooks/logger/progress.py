"""A progress bar for somebody who watches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.utils.logging import is_terminal


@HOOKS.register_module()
class ProgressBarHook(Hook):
    """A bar with iterations, speed and time left at the bottom of a terminal; log lines go on above it. In a pipe, nothing.

    Args:
        refresh_per_second: how often it is drawn, at most.
    """

    def __init__(self, refresh_per_second: float = 4.0) -> None:
        self.refresh_per_second = refresh_per_second
        self._progress: Any = None

    @contextmanager
    def around_run(self, runner: RunnerView) -> Iterator[None]:
        """Show the bar from the run's start to its end, however it ends."""
        if runner.rank != 0 or not is_terminal():
            yield
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = TextColumn('{task.description}'), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        with Progress(*columns, refresh_per_second=self.refresh_per_second, transient=True) as self._progress:
            self._task = self._progress.add_task(runner.model_name, total=runner.max_iters, completed=runner.iter)
            try:
                yield
            finally:
                self._progress.update(self._task, refresh=True)
        self._progress = None

    def after_train_iter(self, runner: RunnerView) -> None:
        if self._progress is not None:
            self._progress.update(self._task, total=runner.max_iters, completed=runner.completed_iters)
