"""What every logger shares: when to log, and under which names."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from numbers import Number
from typing import Any

import numpy as np
import torch

from runnerkit.distributed import reduce_sums
from runnerkit.hooks.hook import Hook, RunnerView


class LoggerHook(Hook, metaclass=ABCMeta):
    """Writes down the run's numbers every ``interval`` iterations; subclasses say where to.

    Args:
        interval: iterations between two log events, counted within the epoch or, without ``by_epoch``, over the whole run.
        ignore_last: whether a last interval of an epoch that is shorter is left out.
        reset_flag: whether this hook clears what it has logged; the run's last logger always does.
        by_epoch: which of the two counts ``interval`` means.
    """

    def __init__(self, interval: int = 10, ignore_last: bool = True, reset_flag: bool = False, by_epoch: bool = True) -> None:
        if not isinstance(interval, int) or interval < 1:
            raise ValueError(f'interval must be a whole number of iterations, at least 1, but got {interval!r}')
        self.interval = interval
        self.ignore_last = ignore_last
        self.reset_flag = reset_flag
        self.by_epoch = by_epoch

    @abstractmethod
    def log(self, runner: RunnerView) -> None:
        """Write down ``runner.log_buffer.output``. Called on all ranks."""

    @staticmethod
    def is_scalar(val: Any, include_np: bool = True, include_torch: bool = True) -> bool:
        """Whether ``val`` is one number: Python's, or numpy's or torch's with one element, where these are included."""
        if include_np and isinstance(val, np.ndarray):
            return val.ndim == 0
        if include_torch and isinstance(val, torch.Tensor):
            return val.numel() == 1
        return isinstance(val, Number)

    def get_mode(self, runner: RunnerView) -> str:
        """What the numbers are of: the runner's mode, or ``'val'`` for scores that an evaluation has left while training."""
        buffer = runner.log_buffer
        if runner.mode == 'train' and not (buffer.averaged or 'time' in buffer.output):
            return 'val'
        return str(runner.mode)

    def get_epoch(self, runner: RunnerView) -> int:
        """The epoch the numbers belong to, from 1."""
        # In a validation epoch of the workflow, runner.epoch is already the next one.
        return runner.epoch if runner.mode == 'val' else runner.epoch + 1

    def get_iter(self, runner: RunnerView, inner_iter: bool = False) -> int:
        """The iteration, from 1: within the epoch if that is asked for and the runner counts so, else over the whole run."""
        return (runner.inner_iter if self.by_epoch and inner_iter else runner.iter) + 1

    def get_lr_tags(self, runner: RunnerView) -> dict[str, float]:
        """The first group's learning rate, of each optimizer."""
        return _first_of_groups('learning_rate', runner.current_lr())

    def get_momentum_tags(self, runner: RunnerView) -> dict[str, float]:
        """The first group's momentum, of each optimizer."""
        return _first_of_groups('momentum', runner.current_momentum())

    def get_loggable_tags(
        self,
        runner: RunnerView,
        allow_scalar: bool = True,
        allow_text: bool = False,
        add_mode: bool = True,
        tags_to_skip: tuple[str, ...] = ('time', 'data_time'),
    ) -> dict[str, Any]:
        """Names and values for a tracker: ``<mode>/<name>``, learning rate and momentum."""
        mode = self.get_mode(runner)
        tags = {}
        for name, value in runner.log_buffer.output.items():
            skipped = name in tags_to_skip or name == 'eval_iter_num'
            if skipped or (self.is_scalar(value) and not allow_scalar) or (isinstance(value, str) and not allow_text):
                continue
            tags[f'{mode}/{name}' if add_mode else name] = value
        tags.update(self.get_lr_tags(runner))
        tags.update(self.get_momentum_tags(runner))
        return tags

    def before_run(self, runner: RunnerView) -> None:
        loggers = [hook for hook in runner.hooks if isinstance(hook, LoggerHook)]
        loggers[-1].reset_flag = True
        runner.log_buffer.window = max(runner.log_buffer.window, self.interval)

    def before_epoch(self, runner: RunnerView) -> None:
        runner.log_buffer.clear()

    def after_train_iter(self, runner: RunnerView) -> None:
        every = self.every_n_inner_iters if self.by_epoch else self.every_n_iters
        if every(runner, self.interval) or (not self.ignore_last and self._is_end_of_epoch(runner)):
            self._average(runner, self.interval)
        self._log_if_ready(runner)

    def after_val_iter(self, runner: RunnerView) -> None:
        # The iteration runner has no validation epochs: the last batch of an entry finds the average made.
        if not runner.by_epoch:
            self._log_if_ready(runner)

    def after_train_epoch(self, runner: RunnerView) -> None:
        self._log_if_ready(runner)

    def after_val_epoch(self, runner: RunnerView) -> None:
        if not runner.log_buffer.ready:
            self._average(runner, 0)
        self._log_if_ready(runner)

    def _is_end_of_epoch(self, runner: RunnerView) -> bool:
        return hasattr(runner.data_loader, '__len__') and self.end_of_epoch(runner)

    def _average(self, runner: RunnerView, n: int) -> None:
        # One logger makes the average; the others of the same moment find it made.
        if not runner.log_buffer.averaged:
            runner.log_buffer.average(n, reduce_sums if runner.world_size > 1 else None)

    def _log_if_ready(self, runner: RunnerView) -> None:
        if runner.log_buffer.ready:
            self.log(runner)
            if self.reset_flag:
                runner.log_buffer.clear_output()


def _first_of_groups(name: str, values: Any) -> dict[str, float]:
    if isinstance(values, dict):
        return {f'{name}/{optimizer}': groups[0] for optimizer, groups in values.items()}
    return {name: values[0]}
