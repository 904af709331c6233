"""``runnerkit profile``: measure the first iterations of a training; keep nothing."""

from __future__ import annotations

import logging
from typing import Any

from runnerkit.flow.context import Context
from runnerkit.flow.stages.training import RunnerBase
from runnerkit.hooks import CheckpointHook, EvalHook, ProfilerHook, TensorboardLoggerHook, TextLoggerHook
from runnerkit.hooks.iteration_parts import DATA, IterationParts, clock_of
from runnerkit.hooks.logger.trackers import TrackerHook
from runnerkit.utils.stopwatch import Stopwatch


class Profile(RunnerBase):
    """The runner stage of ``runnerkit profile``: runs the first iterations of the training and measures their parts.

    Args:
        context: the run's; ``context['profile']`` is this stage afterwards.
        iters: how many iterations to measure, at least 1.
        warmup: how many to run before, at least 1.

    Attributes:
        watch: the stopwatch with the times.
        done: how many iterations were run; fewer than requested if the training is shorter.
    """

    def __init__(self, context: Context, iters: int, warmup: int) -> None:
        context['profile'] = self
        self.iters = iters
        self.warmup = warmup
        self.watch = Stopwatch()
        self.done = 0

    @property
    def measured(self) -> int:
        """How many iterations were measured."""
        return max(0, min(self.done - self.warmup, self.iters))

    def run(self, context: Context) -> None:
        """Measure."""
        runner = context.runner
        keep_inside(runner, context.logger)
        self.watch = Stopwatch(clock_of(runner.model))
        self._parts = IterationParts(self.watch, self._passed)
        try:
            with self._parts.of(runner):
                runner.run(context.loaders, context.workflow)
        finally:
            self.watch.stop()

    def _passed(self, point: str, runner: Any) -> None:
        if point != 'after_train_iter':
            return
        self.done += 1
        if self.done == self.warmup:
            self.watch.start(DATA)
        if self.done == self.warmup + self.iters:
            self.watch.stop()
            runner.stop('the profile is complete')


def keep_inside(runner: Any, logger: logging.Logger) -> None:
    """Make the hooks of ``runner`` write to its work dir only. Trackers, which cannot, and profilers are removed."""
    for hook in list(runner.hooks):
        if isinstance(hook, (TrackerHook, ProfilerHook)):
            logger.info('left out of the profile: %s', type(hook).__name__)
            runner.hooks.remove(hook)
        elif isinstance(hook, (CheckpointHook, EvalHook, TextLoggerHook)):
            hook.out_dir = hook.file_client_args = None
        elif isinstance(hook, TensorboardLoggerHook):
            hook.log_dir = None
        if isinstance(hook, CheckpointHook):
            hook.save_last = False  # this run does not end where the training ends
