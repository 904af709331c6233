"""Curves for TensorBoard."""

from __future__ import annotations

import os
from typing import Any

from runnerkit.distributed import master_only
from runnerkit.hooks.hook import HOOKS, RunnerView
from runnerkit.hooks.logger.base import LoggerHook


@HOOKS.register_module()
class TensorboardLoggerHook(LoggerHook):
    """Writes event files for TensorBoard; the step is the number of completed iterations.

    Args:
        log_dir: where to; by default ``<work dir>/tf_logs``.
        interval: iterations between two events.
        ignore_last: whether a last interval of an epoch that is shorter is left out.
        reset_flag: whether this hook clears what it has logged.
        by_epoch: whether to count within epochs.
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
        super().before_run(runner)
        if runner.rank == 0:
            self._open(runner)

    def _open(self, runner: RunnerView) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError("TensorboardLoggerHook needs tensorboard: pip install 'runnerkit[tensorboard]'") from error
        if self.log_dir is None:
            if runner.work_dir is None:
                raise ValueError('TensorboardLoggerHook has nowhere to write: give the runner a work_dir, or the hook a log_dir')
            self.log_dir = os.path.join(runner.work_dir, 'tf_logs')
        # Of a resumed run, what the interrupted one wrote beyond the checkpoint is hidden: it happens again now.
        purge = runner.completed_iters + 1 if runner.completed_iters else None
        self.writer = SummaryWriter(self.log_dir, purge_step=purge)

    @master_only
    def log(self, runner: RunnerView) -> None:
        for tag, value in self.get_loggable_tags(runner, allow_text=True).items():
            if isinstance(value, str):
                self.writer.add_text(tag, value, runner.completed_iters)
            else:
                self.writer.add_scalar(tag, value, runner.completed_iters)

    @master_only
    def after_run(self, runner: RunnerView) -> None:
        if self.writer is not None:
            self.writer.close()
