"""Tells samplers the number of the epoch."""

from __future__ import annotations

from runnerkit.data import set_epoch
from runnerkit.hooks.hook import HOOKS, Hook, RunnerView


@HOOKS.register_module()
class DistSamplerSeedHook(Hook):
    """Calls ``set_epoch`` of the loader's sampler, so that a distributed sampler uses a new order in each epoch.

    The runners already do this for every sampler that has ``set_epoch``. The hook exists because MMCV's configs and
    scripts register it.
    """

    needs_training = True

    def before_epoch(self, runner: RunnerView) -> None:
        set_epoch(runner.data_loader, runner.epoch)
