"""``runnerkit profile``: measure the first iterations of a training; keep nothing but the trace."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from torch.profiler import profile, record_function

from runnerkit.flow.context import Context
from runnerkit.flow.stages.training import RunnerBase
from runnerkit.hooks import CheckpointHook, EvalHook, ProfilerHook, TensorboardLoggerHook, TextLoggerHook
from runnerkit.hooks.iteration_parts import DATA, IterationParts, clock_of
from runnerkit.hooks.logger.tracker import TrackerHook
from runnerkit.utils.stopwatch import Stopwatch

#: How many iterations are traced; each may take megabytes.
TRACED = 5


class Profile(RunnerBase):
    """The runner stage of ``runnerkit profile``: runs the first iterations of the training and measures their parts.

    The warm-up iterations are followed by the measured ones. If a trace is wanted, `TRACED` more run with torch's
    profiler, which would slow down the measured ones.

    Args:
        context: the run's; ``context['profile']`` is this stage afterwards.
        iters: how many iterations to measure, at least 1.
        warmup: how many to run before, at least 1.
        trace: the file for a trace in the format of Chrome and Perfetto; None for no trace.

    Attributes:
        watch: the stopwatch with the times.
        done: how many iterations were run; fewer than requested if the training is shorter.
    """

    def __init__(self, context: Context, iters: int, warmup: int, trace: str | None = None) -> None:
        context['profile'] = self
        self.iters = iters
        self.warmup = warmup
        self.trace = trace
        self.watch = Stopwatch()
        self.done = 0
        self._profiler: profile | None = None

    @property
    def measured(self) -> int:
        """How many iterations were measured."""
        return max(0, min(self.done - self.warmup, self.iters))

    @property
    def traced(self) -> int:
        """How many iterations were traced."""
        return max(0, self.done - self.warmup - self.iters)

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
            self._end_trace()

    def _passed(self, point: str, runner: Any) -> None:
        if point != 'after_train_iter':
            return
        self.done += 1
        if self.done == self.warmup:
            self.watch.start(DATA)
        if self.done == self.warmup + self.iters:
            self.watch.stop()
            if self.trace is not None:
                self._begin_trace()
        if self.done == self.warmup + self.iters + (0 if self.trace is None else TRACED):
            self._end_trace()
            runner.stop('the profile is complete')

    def _begin_trace(self) -> None:
        self._profiler = profile()
        self._profiler.start()
        # The host's clock will do: only the names of the parts are needed now.
        self._parts.watch = Stopwatch(mark=record_function)
        self._parts.watch.start(DATA)

    def _end_trace(self) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            self._parts.watch.stop()
            profiler.stop()
            if self.traced:
                profiler.export_chrome_trace(str(self.trace))
                if not Path(str(self.trace)).is_file():  # torch only logs the error
                    raise OSError(f'the trace could not be written to {self.trace}: choose another place with --trace')


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
