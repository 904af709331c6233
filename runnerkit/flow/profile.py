"""``runnerkit profile``: a piece of the training, measured; nothing of it is kept."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from torch.profiler import profile, record_function

from runnerkit.flow.context import Context
from runnerkit.hooks import CheckpointHook, EvalHook, ProfilerHook, TensorboardLoggerHook, TextLoggerHook
from runnerkit.hooks.logger.tracker import TrackerHook
from runnerkit.utils.iteration_parts import DATA, IterationParts, clock_of
from runnerkit.utils.stopwatch import Stopwatch

#: How many iterations a trace has: each may be megabytes.
TRACED = 5


class Profile:
    """Takes the runner stage's place: runs the training's first iterations and measures their parts.

    First come those for warming up, then the measured ones; then, if there is to be a trace, `TRACED` more with torch's
    profiler, which would make the measured ones longer.

    Args:
        iters: how many iterations are measured, at least 1.
        warmup: how many come before, at least 1.
        trace: the file to write a trace to, in the format of Chrome and Perfetto; None for no trace.

    Attributes:
        watch: what has measured.
        done: how many iterations there were: fewer than asked for where the training has no more.
    """

    def __init__(self, iters: int, warmup: int, trace: str | None = None) -> None:
        self.iters = iters
        self.warmup = warmup
        self.trace = trace
        self.watch = Stopwatch()
        self.done = 0
        self._profiler: profile | None = None

    @property
    def measured(self) -> int:
        """How many iterations `watch` has measured."""
        return max(0, min(self.done - self.warmup, self.iters))

    @property
    def traced(self) -> int:
        """How many iterations the trace has."""
        return max(0, self.done - self.warmup - self.iters)

    def __call__(self, context: Context) -> None:
        """Run the stage."""
        runner = context.runner
        keep_inside(runner, context.logger)
        self.watch = Stopwatch(clock_of(runner.model))
        self._parts = IterationParts(self.watch, self._passed)
        try:
            with self._parts.of(runner):
                runner.run(context.loaders, context.workflow)
        finally:
            context.outcome = runner.outcome
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
        # The clock of the machine, whatever the device: only the names are needed now.
        self._parts.watch = Stopwatch(mark=record_function)
        self._parts.watch.start(DATA)

    def _end_trace(self) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            self._parts.watch.stop()
            profiler.stop()
            if self.traced:
                profiler.export_chrome_trace(str(self.trace))
                if not Path(str(self.trace)).is_file():  # torch only logs it
                    raise OSError(f'the trace could not be written to {self.trace}: choose another place with --trace')


def keep_inside(runner: Any, logger: logging.Logger) -> None:
    """Let the hooks of ``runner`` write into its work dir only, and leave those out that cannot; or that would profile
    the profile."""
    for hook in list(runner.hooks):
        if isinstance(hook, (TrackerHook, ProfilerHook)):
            logger.info('left out of the profile: %s', type(hook).__name__)
            runner.hooks.remove(hook)
        elif isinstance(hook, (CheckpointHook, EvalHook, TextLoggerHook)):
            hook.out_dir = hook.file_client_args = None
        elif isinstance(hook, TensorboardLoggerHook):
            hook.log_dir = None
        if isinstance(hook, CheckpointHook):
            hook.save_last = False  # the end of this run is none of the training's
