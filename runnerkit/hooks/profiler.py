"""Runs torch's profiler over the first epochs or iterations."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from torch.profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    tensorboard_trace_handler,
)
from torch.profiler import schedule as make_schedule

from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.registry import find_function
from runnerkit.utils.exceptions import WrongType
from runnerkit.utils.suggest import suggestion

_RECORDS = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
_ACTIVITIES = {'cpu': ProfilerActivity.CPU, 'cuda': ProfilerActivity.CUDA}


@HOOKS.register_module()
class ProfilerHook(Hook):
    """Runs `torch.profiler.profile` on rank 0 from the start of the run for ``profile_iters`` epochs or iterations.

    Args:
        by_epoch: whether ``profile_iters`` counts epochs or iterations.
        profile_iters: how many to profile; the run must have at least as many.
        activities: any of ``'cpu'`` and ``'cuda'``.
        schedule: arguments of `torch.profiler.schedule`, which counts iterations; None profiles all of them.
        on_trace_ready: what to do with the trace. A function is called with the profiler. ``dict(type='log_trace')``
            prints the table of `key_averages`; its other keys are arguments of ``table`` (``sort_by``, ``row_limit``
            …). ``dict(type='tb_trace')`` writes files for TensorBoard's profiler plugin; its other keys are arguments
            of `torch.profiler.tensorboard_trace_handler`, with ``tf_tracing_logs`` in the work dir as the default
            ``dir_name``.
        record_shapes, profile_memory, with_stack, with_flops: as in `torch.profiler.profile`.
        json_trace_path: a file for Chrome's trace viewer and Perfetto.
        parts: also measure the parts of an iteration: waiting for data, forward, backward, update, each hook by name.
            Their names become ranges of the trace, and a table of their times is logged, for the iterations that
            ``schedule`` records, except the first. torch's profiler makes them slower; ``runnerkit profile`` measures
            without it.
    """

    needs_training = True

    def __init__(
        self,
        by_epoch: bool = True,
        profile_iters: int = 1,
        activities: Sequence[str] = ['cpu', 'cuda'],
        schedule: dict[str, Any] | None = None,
        on_trace_ready: Callable[..., Any] | dict[str, Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        json_trace_path: str | None = None,
        parts: bool = False,
    ) -> None:
        if not isinstance(by_epoch, bool):
            raise WrongType(f'by_epoch must be True or False, but got {by_epoch!r}')
        if profile_iters < 1:
            raise ValueError(f'profile_iters should be greater than 0, but got {profile_iters}')
        if parts and not by_epoch and profile_iters < 2:
            raise ValueError('parts=True needs at least profile_iters=2: the first iteration is not measured')
        self.by_epoch = by_epoch
        self.profile_iters = profile_iters
        self.activities = _activities(activities)
        if schedule is not None and not isinstance(schedule, dict):
            raise TypeError(f'schedule must be a dict of arguments of torch.profiler.schedule, but got {schedule!r}')
        self.schedule: Callable[[int], Any] | None = None if schedule is None else make_schedule(**schedule)
        self.on_trace_ready = on_trace_ready
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.with_flops = with_flops
        self.json_trace_path = json_trace_path
        self.parts = parts
        self.profiler: profile | None = None
        self._watch: Any = None  # a Stopwatch while parts are measured
        self._measuring = ExitStack()

    def before_run(self, runner: RunnerView) -> None:
        if runner.rank != 0:
            return
        length = runner.max_epochs if self.by_epoch else runner.max_iters
        if length is not None and length < self.profile_iters:
            unit = 'epochs' if self.by_epoch else 'iterations'
            raise ValueError(
                f'profile_iters should not be greater than {length}, the {unit} of the run, but got '
                f'{self.profile_iters}'
            )
        self.profiler = profile(
            activities=self.activities,
            schedule=self.schedule,
            on_trace_ready=self._trace_handler(runner),
            record_shapes=self.record_shapes,
            profile_memory=self.profile_memory,
            with_stack=self.with_stack,
            with_flops=self.with_flops,
        )
        self.profiler.start()
        if self.parts:
            self._measure_parts(runner)
        runner.logger.info(
            'the profiler runs for %d %s', self.profile_iters, 'epochs' if self.by_epoch else 'iterations'
        )

    def after_train_iter(self, runner: RunnerView) -> None:
        if self.profiler is None:
            return
        with self._uncounted():
            self.profiler.step()
        if not self.by_epoch and runner.iter + 1 >= self.profile_iters:
            self._stop()

    def after_train_epoch(self, runner: RunnerView) -> None:
        if self.by_epoch and runner.epoch + 1 >= self.profile_iters:
            self._stop()

    def after_run(self, runner: RunnerView) -> None:
        self._stop()
        self._report_parts(runner)

    def _stop(self) -> None:
        """End the profile, once; also that of a run which ends before its time."""
        profiler, self.profiler = self.profiler, None
        if profiler is None:
            return
        with self._uncounted():
            profiler.stop()
            # None: the run was over before the schedule's first iteration, and there is no trace.
            if self.json_trace_path is not None and profiler.profiler is not None:
                profiler.export_chrome_trace(self.json_trace_path)

    def _uncounted(self) -> AbstractContextManager[None]:
        """Stop the clock: the profiler's own work is not part of an iteration."""
        return nullcontext() if self._watch is None else self._watch.paused()

    def _measure_parts(self, runner: RunnerView) -> None:
        self._steps = self._measured = 0
        from runnerkit.hooks.iteration_parts import IterationParts, clock_of
        from runnerkit.utils.stopwatch import Stopwatch

        self._watch = Stopwatch(clock_of(runner.model), record_function)
        self._measuring.enter_context(IterationParts(self._watch, self._passed, left_out=self).of(runner))

    def _passed(self, point: str, runner: RunnerView) -> None:
        """Called at the end of an iteration or epoch, after all hooks, when its parts are complete."""
        if point == 'after_train_iter':
            self._measured += self._watch.current is not None
            self._steps += 1
            if not (self.schedule is None or self.schedule(self._steps) in _RECORDS):
                self._watch.stop()
            elif self._watch.current is None:
                from runnerkit.hooks.iteration_parts import DATA

                self._watch.start(DATA)
        if self.profiler is None:
            self._report_parts(runner)

    def _report_parts(self, runner: RunnerView) -> None:
        """Log the table, once."""
        watch, self._watch = self._watch, None
        if watch is None:
            return
        watch.stop()
        self._measuring.close()
        if self._measured:
            from runnerkit.utils.stopwatch import time_table

            table = time_table(watch.parts(), self._measured)
            runner.logger.info('The parts of %d iterations, in %s:\n%s', self._measured, watch.clock.description, table)
        else:
            runner.logger.warning('the parts of no iteration were measured: the run was over before the second one')

    def _trace_handler(self, runner: RunnerView) -> Callable[..., Any] | None:
        given = self.on_trace_ready
        if given is None or callable(given):
            return given
        if not isinstance(given, dict):
            raise ValueError(
                f"on_trace_ready should be a function of the profiler, a dict with the key 'type' or None, but got "
                f'{type(given)}'
            )
        options = dict(given)
        kind = options.pop('type', None)
        if kind == 'log_trace':
            return lambda profiler: print(profiler.key_averages().table(**options))
        if kind == 'tb_trace':
            options['dir_name'] = os.path.join(runner.work_dir or '', options.get('dir_name', 'tf_tracing_logs'))
            return tensorboard_trace_handler(**options)
        if isinstance(kind, str) and set('.:') & set(kind):
            return find_function(given, 'on_trace_ready')
        hint = suggestion(str(kind), ['log_trace', 'tb_trace'])
        raise ValueError(f"on_trace_ready's type should be 'log_trace' or 'tb_trace', but got {kind!r}{hint}")


def _activities(names: Sequence[str]) -> list[ProfilerActivity]:
    if not isinstance(names, (list, tuple)):
        raise ValueError(f"activities should be a list such as ['cpu', 'cuda'], but got {type(names)}")
    for name in names:
        if str(name).lower() not in _ACTIVITIES:
            raise ValueError(f"activity should be 'cpu' or 'cuda', but got {name!r}")
    return [_ACTIVITIES[name.lower()] for name in names]
