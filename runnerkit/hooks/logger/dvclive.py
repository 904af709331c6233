"""Curves in files that DVC tracks."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from runnerkit.distributed import get_dist_info
from runnerkit.hooks.hook import HOOKS, RunnerView
from runnerkit.hooks.logger.tracker import TrackerHook
from runnerkit.utils.pictures import Pixels


@HOOKS.register_module()
class DvcliveLoggerHook(TrackerHook):
    """Logs to DVCLive: at the end of every epoch the results of hooks and validations, or else at every interval.

    Args:
        model_file: the file to save the model to after every epoch; None saves nothing. Give it on every rank.
        interval, ignore_last, reset_flag: as in `LoggerHook`.
        by_epoch: whether DVCLive's steps are epochs or iterations.
        dvclive: a ``dvclive.Live`` to log to, which is not closed at the end; by default the hook makes its own.
        **kwargs: arguments of ``dvclive.Live``, of version 2 or later; ``resume=True`` continues existing files.
    """

    def __init__(
        self,
        model_file: str | None = None,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
        dvclive: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        self.model_file = model_file
        self._own = dvclive is None
        self._import_dvclive(dvclive, **kwargs)

    def _import_dvclive(self, dvclive: Any = None, **kwargs: Any) -> None:
        """Set ``self.dvclive``; None on all ranks but the first, because they must not write the same files."""
        live = None if dvclive is not None else self._client('dvclive', 'dvclive').Live
        self.dvclive: Any = dvclive
        if live is not None and get_dist_info()[0] == 0:
            self.dvclive = live(**kwargs)

    def after_train_iter(self, runner: RunnerView) -> None:
        if not self.by_epoch:
            super().after_train_iter(runner)
        elif self.reset_flag and runner.log_buffer.ready:
            runner.log_buffer.clear_output()  # otherwise the loggers before this one would log in every iteration

    def after_train_epoch(self, runner: RunnerView) -> None:
        super().after_train_epoch(runner)
        if self.model_file is not None:
            file = Path(self.model_file)
            runner.save(str(file.parent), file.name, create_symlink=False, caller=self)

    def _step_of(self, runner: RunnerView) -> Any:
        return self.get_epoch(runner) if self.by_epoch else self.get_iter(runner)

    def _send(self, tags: dict[str, Any], runner: RunnerView) -> None:
        self.dvclive.step = self._step_of(runner)
        for tag, value in tags.items():
            self.dvclive.log_metric(tag, value)
        self.dvclive.sync()

    def _send_image(self, name: str, pixels: Pixels, runner: RunnerView) -> None:
        self.dvclive.log_image(f'{quote(name, safe="")}/{self.get_iter(runner)}.png', pixels)

    def _close(self, runner: RunnerView) -> None:
        if self._own:
            self.dvclive.end()
