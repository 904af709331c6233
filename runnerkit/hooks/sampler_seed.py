"""Tells samplers which epoch it is."""

from __future__ import annotations

from runnerkit.data import set_epoch
from runnerkit.hooks.hook import HOOKS, Hook, RunnerView


@HOOKS.register_module()
class DistSamplerSeedHook(Hook):
    """Calls ``set_epoch`` of the loader's sampler, so that a distributed sampler shuffles anew in each epoch.

    The runners do so by themselves for every sampler that has ``set_epoch``; MMCV's configs and scripts register this
    hook.
    """

    def before_epoch(self, runner: RunnerView) -> None:
        set_epoch(runner.data_loader, runner.epoch)
