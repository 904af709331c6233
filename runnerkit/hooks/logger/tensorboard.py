"""Curves for TensorBoard."""

from __future__ import annotations

import os
from typing import Any

from runnerkit.hooks.hook import HOOKS, RunnerView
from runnerkit.hooks.logger.base import LoggerHook


@HOOKS.register_module()
class TensorboardLoggerHook(LoggerHook):
    """Logs numbers, learning rates and texts; what was drawn beyond the point where a run is resumed is hidden then.

    Args:
        log_dir: where the event files go; by default ``tf_logs`` in the work dir.
        interval: as in `LoggerHook`.
        ignore_last: as in `LoggerHook`.
        reset_flag: as in `LoggerHook`.
        by_epoch: as in `LoggerHook`.
    """

    def __init__(
        self,
        log_dir: str | None = None,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        self.log_dir = log_dir
        self.writer: Any = None

    def before_run(self, runner: RunnerView) -> None:
        """Open the event file."""
        super().before_run(runner)
        if runner.rank != 0:
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError(
                "TensorboardLoggerHook needs tensorboard: pip install 'runnerkit[tensorboard]'"
            ) from error
        if self.log_dir is None:
            if runner.work_dir is None:
                raise ValueError(
                    'TensorboardLoggerHook has nowhere to write: give it a log_dir, or the runner a work_dir'
                )
            self.log_dir = os.path.join(runner.work_dir, 'tf_logs')
        done = runner.completed_iters
        self.writer = SummaryWriter(self.log_dir, purge_step=done + 1 if done else None)

    def log(self, runner: RunnerView) -> None:
        """Draw a point of each curve at the number of iterations done."""
        step = runner.completed_iters  # not `get_iter`: a resumed run hides what lies beyond those that are done
        for tag, value in self.get_loggable_tags(runner, allow_text=True).items():
            if isinstance(value, str):
                self.writer.add_text(tag, value, step)
            elif self.is_scalar(value):
                self.writer.add_scalar(tag, value, step)

    def after_run(self, runner: RunnerView) -> None:
        """Close the event file."""
        if self.writer is not None:
            self.writer.close()
            self.writer = None
