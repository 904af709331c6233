"""The hook that ends a run early, as if it had been asked to."""

from __future__ import annotations

from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.utils.numbers import check_whole_number


@HOOKS.register_module()
class StopAfterHook(Hook):
    """Stops the run when it has trained for ``number`` epochs, or iterations in an iteration runner.

    Schedules keep the length of the whole run. So this is what a longer run would be at that moment, and it can be
    resumed. ``--stop-after`` of ``runnerkit train`` registers it.

    Args:
        number: after how many completed epochs (iterations); at least 1.
    """

    needs_training = True

    def __init__(self, number: int) -> None:
        check_whole_number('number', number)
        self.number = number

    def after_train_epoch(self, runner: RunnerView) -> None:
        if runner.by_epoch and runner.completed_epochs >= self.number:
            runner.stop(f'after {self.number} epochs, as asked')

    def after_train_iter(self, runner: RunnerView) -> None:
        if not runner.by_epoch and runner.completed_iters >= self.number:
            runner.stop(f'after {self.number} iterations, as asked')
