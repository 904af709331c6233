"""A progress bar of the training on a terminal."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.optim.named import named_optimizers
from runnerkit.utils.logging import console, is_terminal, printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

#: The loss shown is the mean of at most so many of the latest iterations.
RECENT = 10
#: The least time between two updates of the bar, in seconds.
PAUSE = 0.1


@HOOKS.register_module()
class ProgressBarHook(Hook):
    """Shows below the log lines how far the run is, with loss, learning rate and latest scores; in a pipe, nothing.

    The loss is taken from the log buffer. The bar never waits for a GPU: there it shows the loss of the iterations that
    a logger has read.
    """

    needs_training = True

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._loss: float | None = None
        self._shown_at = -math.inf

    def before_run(self, runner: RunnerView) -> None:
        """Open the bar."""
        if runner.rank != 0 or not is_terminal():
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column

        rest_of_the_line = Column(no_wrap=True, overflow='ellipsis', ratio=1)
        self._bar = Progress(
            TextColumn('{task.description}'),
            BarColumn(bar_width=20 if console().width >= 100 else 10),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn('{task.fields[figures]}', markup=False, table_column=rest_of_the_line),
            console=console(),
            transient=True,
            expand=True,
            redirect_stdout=sys.stdout.isatty(),  # what user code prints into a file or pipe stays there
        )
        self._loss = None
        self._task = self._bar.add_task(self._describe(runner), figures='', **self._done(runner))
        self._bar.start()

    def after_train_iter(self, runner: RunnerView) -> None:
        """Show the iteration, if the last update is `PAUSE` ago."""
        if self._bar is not None and time.monotonic() - self._shown_at >= PAUSE:
            self._show(runner)

    def after_train_epoch(self, runner: RunnerView) -> None:
        """Show the epoch's end."""
        self._show(runner)

    def before_val_epoch(self, runner: RunnerView) -> None:
        """Name the mode."""
        self._show(runner)

    def after_evaluate(self, runner: RunnerView, scores: dict[str, float]) -> None:
        """Show the scores."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, figures=self._figures(runner))

    def after_run(self, runner: RunnerView) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None

    def _show(self, runner: RunnerView) -> None:
        if self._bar is None or self._task is None:
            return
        self._shown_at = time.monotonic()
        self._bar.update(
            self._task,
            description=self._describe(runner),
            figures=self._figures(runner),
            **self._done(runner),
        )

    def _done(self, runner: RunnerView) -> dict[str, Any]:
        return {'total': runner.max_iters, 'completed': runner.completed_iters}

    def _describe(self, runner: RunnerView) -> str:
        if not runner.by_epoch:
            return runner.mode or 'train'
        mode = '' if runner.mode in ('train', None) else f'{runner.mode} '
        last = '' if runner.max_epochs is None else f'/{runner.max_epochs}'
        return f'{mode}epoch {runner.completed_epochs if runner.mode == "val" else runner.epoch + 1}{last}'

    def _figures(self, runner: RunnerView) -> str:
        """Loss, learning rate and scores, as text."""
        # A validation has its own buffer.
        recent = on_host(runner.log_buffer.val_history.get('loss', ()))
        self._loss = sum(recent) / len(recent) if recent else self._loss
        figures = [] if self._loss is None else [f'loss {self._loss:.4f}']
        for name, optimizer in named_optimizers(runner.optimizer).items():
            label = f'lr {printable(name)}'.rstrip()
            figures += [f'{label} {rate:.1e}' for rate in on_host([optimizer.param_groups[0]['lr']])]
        figures += [f'{printable(name)} {score.value:.4g}' for name, score in runner.scores.items() if name != 'loss']
        if 'loss' in runner.scores:
            figures.append(f'val loss {runner.scores["loss"].value:.4g}')
        return '  '.join(figures)


def on_host(values: Iterable[Any]) -> list[float]:
    """The last `RECENT` of ``values`` that can be read without waiting for a device."""
    latest = [value for value in list(values)[-RECENT:] if not isinstance(value, Tensor) or value.device.type == 'cpu']
    return [float(value) for value in latest]
