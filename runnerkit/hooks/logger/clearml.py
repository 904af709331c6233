"""Curves in ClearML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runnerkit.hooks.hook import HOOKS, RunnerView
from runnerkit.hooks.logger.tracker import TrackerHook, has_failed
from runnerkit.utils.pictures import Pixels


@HOOKS.register_module()
@dataclass(eq=False, repr=False)
class ClearMLLoggerHook(TrackerHook):
    """Logs to the ClearML task of this process, or else to a new task, which a resumed run continues.

    Args:
        init_kwargs: arguments of ``clearml.Task.init``.
        interval, ignore_last, reset_flag, by_epoch: as in `LoggerHook`.
    """

    client = 'clearml'
    _own = False

    init_kwargs: dict[str, Any] | None = None
    interval: int = 10
    ignore_last: bool = True
    reset_flag: bool = False
    by_epoch: bool = True

    def import_clearml(self) -> None:
        """Set ``self.clearml``."""
        self.clearml = self._client('clearml', 'clearml')

    def _open(self, runner: RunnerView) -> None:
        options = dict(self.init_kwargs or {})
        self._own = self.clearml.Task.current_task() is None
        goes_on = self._own and self.run_id is not None and 'continue_last_task' not in options
        if goes_on:
            options['continue_last_task'] = self.run_id
        self.task = self.clearml.Task.init(**options)
        if goes_on:  # ClearML would add its last iteration to ours, which already count from the run's beginning
            self.task.set_initial_iteration(0)
        self.task_logger = self.task.get_logger()
        self._keep_id(self.task.id)

    def _send(self, tags: dict[str, Any], runner: RunnerView) -> None:
        step = self.get_iter(runner)
        for tag, value in tags.items():
            self.task_logger.report_scalar(tag, tag, value, step)

    def _send_image(self, name: str, pixels: Pixels, runner: RunnerView) -> None:
        self.task_logger.report_image(name, name, iteration=self.get_iter(runner), image=pixels)

    def _close(self, runner: RunnerView) -> None:
        if not self._own:
            return
        if has_failed(runner):
            self.task.mark_failed(status_reason=str(runner.outcome))
        self.task.close()
