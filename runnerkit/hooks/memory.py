"""Gives memory back that the allocator keeps."""

from __future__ import annotations

import torch

from runnerkit.hooks.hook import HOOKS, Hook, RunnerView


@HOOKS.register_module()
class EmptyCacheHook(Hook):
    """Empties CUDA's cache of free memory, for whatever else runs on the device. Slows training down.

    Args:
        before_epoch: whether to do so before each epoch.
        after_epoch: whether to do so after each epoch.
        after_iter: whether to do so after each iteration.
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
