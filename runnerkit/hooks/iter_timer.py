"""Measures how long an iteration takes, and how long it waits for data."""

from __future__ import annotations

import time
from functools import cached_property

from runnerkit.hooks.hook import HOOKS, Hook, RunnerView


@HOOKS.register_module()
class IterTimerHook(Hook):
    """Logs ``data_time`` (seconds waited for the batch) and ``time`` (seconds of the whole iteration)."""

    needs_training = True

    _data_time: float | None = None  # of the running iteration; logged together with its time, which is cheaper

    @cached_property
    def t(self) -> float:
        """When the running iteration began to wait for its data.

        Raises:
            RuntimeError: no epoch has begun.
        """
        raise RuntimeError(
            'an iteration began before its epoch: a custom train must call '
            "self.call_hook('before_train_epoch') before its first iteration"
        )

    def before_epoch(self, runner: RunnerView) -> None:
        self.t = time.time()

    def before_iter(self, runner: RunnerView) -> None:
        self._data_time = time.time() - self.t

    def after_iter(self, runner: RunnerView) -> None:
        now = time.time()
        times = {} if self._data_time is None else {'data_time': self._data_time}
        times['time'] = now - self.t
        runner.log_buffer.update(times)
        self.t = now
