"""A progress bar for whoever watches a training on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.utils.logging import console, is_terminal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@HOOKS.register_module()
class ProgressBarHook(Hook):
    """Shows iterations done, and the time that is left, below the log lines; in a pipe, nothing."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def before_run(self, runner: RunnerView) -> None:
        """Open the bar."""
        if runner.rank != 0 or not is_terminal():
            return
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._bar = Progress(
            TextColumn('{task.description}'),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console(),
            transient=True,
        )
        self._task = self._bar.add_task(
            self._describe(runner), total=runner.max_iters, completed=runner.completed_iters
        )
        self._bar.start()

    def after_train_iter(self, runner: RunnerView) -> None:
        """Move on."""
        self._show(runner)

    def before_val_epoch(self, runner: RunnerView) -> None:
        """Say that this is validation."""
        self._show(runner)

    def after_run(self, runner: RunnerView) -> None:
        """Take the bar away; the log lines stay."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None

    def _show(self, runner: RunnerView) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task, description=self._describe(runner), total=runner.max_iters, completed=runner.completed_iters
            )

    def _describe(self, runner: RunnerView) -> str:
        if not runner.by_epoch:
            return runner.mode or 'train'
        last = '' if runner.max_epochs is None else f'/{runner.max_epochs}'
        return f'{runner.mode or "train"} epoch {runner.epoch + (runner.mode != "val")}{last}'
