"""MMCV's hooks of a few lines each."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch

from runnerkit.data import set_epoch
from runnerkit.distributed import allreduce_params
from runnerkit.hooks.hook import HOOKS, POINTS, RINGS, Hook, RunnerView
from runnerkit.utils.exceptions import WrongType, WrongValue


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


@HOOKS.register_module()
class EmptyCacheHook(Hook):
    """Empties torch's cache of free CUDA memory, so that other processes can use it. Slows training down.

    Args:
        before_epoch: empty it before each epoch.
        after_epoch: empty it after each epoch.
        after_iter: empty it after each iteration.
    """

    def __init__(self, before_epoch: bool = False, after_epoch: bool = True, after_iter: bool = False) -> None:
        self._before_epoch = before_epoch
        self._after_epoch = after_epoch
        self._after_iter = after_iter

    def before_epoch(self, runner: RunnerView) -> None:
        if self._before_epoch:
            torch.cuda.empty_cache()

    def after_epoch(self, runner: RunnerView) -> None:
        if self._after_epoch:
            torch.cuda.empty_cache()

    def after_iter(self, runner: RunnerView) -> None:
        if self._after_iter:
            torch.cuda.empty_cache()


@HOOKS.register_module()
class ClosureHook(Hook):
    """Calls one function at one point.

    Args:
        fn_name: the point's name, e.g. ``'after_train_iter'``.
        fn: called with the runner.

    Raises:
        WrongValue: there is no such point.
        WrongType: ``fn`` is not callable.
    """

    def __init__(self, fn_name: str, fn: Callable[[Any], Any]) -> None:
        if fn_name not in (*POINTS, *RINGS):
            raise WrongValue(f'there is no point {fn_name!r}; the points are {", ".join((*POINTS, *RINGS))}')
        if not callable(fn):
            raise WrongType(f'fn must be callable with the runner, but got {fn!r}')
        setattr(self, fn_name, fn)


@HOOKS.register_module()
class SyncBuffersHook(Hook):
    """Replaces the model's buffers (BatchNorm's statistics) by their means over the ranks after each epoch.

    Args:
        distributed: False switches it off.
    """

    needs_training = True

    def __init__(self, distributed: bool = True) -> None:
        self.distributed = distributed

    def after_epoch(self, runner: RunnerView) -> None:
        if self.distributed:
            allreduce_params(runner.model.buffers())


@HOOKS.register_module()
class DistSamplerSeedHook(Hook):
    """Calls ``set_epoch`` of the loader's sampler, so that a distributed sampler uses a new order in each epoch.

    The runners already do this for every sampler that has ``set_epoch``. The hook exists because MMCV's configs and
    scripts register it.
    """

    needs_training = True

    def before_epoch(self, runner: RunnerView) -> None:
        set_epoch(runner.data_loader, runner.epoch)
