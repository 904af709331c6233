"""Curves in neptune.ai."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runnerkit.hooks.hook import HOOKS, RunnerView
from runnerkit.hooks.logger.tracker import TrackerHook, has_failed
from runnerkit.utils.pictures import Pixels


@HOOKS.register_module()
@dataclass(eq=False, repr=False)
class NeptuneLoggerHook(TrackerHook):
    """Logs to Neptune, with its client of version 1 or later.

    Args:
        init_kwargs: arguments of the client's ``init_run``.
        interval, ignore_last, reset_flag: as in `LoggerHook`.
        with_step: whether to log values with their iteration; if not, Neptune counts them.
        by_epoch: as in `LoggerHook`.
    """

    client = 'neptune'

    init_kwargs: dict[str, Any] | None = None
    interval: int = 10
    ignore_last: bool = True
    reset_flag: bool = True
    with_step: bool = True
    by_epoch: bool = True

    def import_neptune(self) -> None:
        """Set ``self.neptune``."""
        self.neptune = self._client('neptune', 'neptune')
        self.run: Any = None

    def _open(self, runner: RunnerView) -> None:
        self.run = self.neptune.init_run(**(self.init_kwargs or {}))

    def _send(self, tags: dict[str, Any], runner: RunnerView) -> None:
        step = {'step': self.get_iter(runner)} if self.with_step else {}
        for tag, value in tags.items():
            self.run[tag].append(value, **step)

    def _send_image(self, name: str, pixels: Pixels, runner: RunnerView) -> None:
        self._send({name: self.neptune.types.File.as_image(pixels / 255)}, runner)

    def _close(self, runner: RunnerView) -> None:
        if has_failed(runner):
            self.run['sys/failed'] = True
        self.run.stop()
