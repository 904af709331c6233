"""Keeps the ranks' buffers equal."""

from __future__ import annotations

from runnerkit.distributed import allreduce_params
from runnerkit.hooks.hook import HOOKS, Hook, RunnerView


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
