"""Returns unused GPU memory to the device."""

from __future__ import annotations

import torch

from runnerkit.hooks.hook import HOOKS, Hook, RunnerView


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
