"""Curves in Segmind's experiment tracker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runnerkit.hooks.hook import HOOKS, RunnerView
from runnerkit.hooks.logger.tracker import TrackerHook


@HOOKS.register_module()
@dataclass(eq=False, repr=False)
class SegmindLoggerHook(TrackerHook):
    """Logs to Segmind by epoch. Only clients before version 0.2 have a tracker.

    Args:
        interval, ignore_last, reset_flag, by_epoch: as in `LoggerHook`.
    """

    client = 'segmind'

    interval: int = 10
    ignore_last: bool = True
    reset_flag: bool = False
    by_epoch: bool = True

    def import_segmind(self) -> None:
        """Set ``self.log_metrics`` and ``self.mlflow_log``, which calls it.

        Raises:
            ImportError: the client is not installed, or is a later one.
        """
        segmind = self._client('segmind', 'segmind<0.2')
        try:
            self.log_metrics = segmind.tracking.fluent.log_metrics
            self.mlflow_log = segmind.utils.logging_utils.try_mlflow_log
        except AttributeError as error:
            raise ImportError(
                f"the installed segmind tracks no experiments: pip install 'segmind<0.2' ({error})"
            ) from error

    def _step_of(self, runner: RunnerView) -> Any:
        return None  # an epoch, which has several lines

    def _send(self, tags: dict[str, Any], runner: RunnerView) -> None:
        self.mlflow_log(self.log_metrics, tags, step=runner.epoch, epoch=runner.epoch)
