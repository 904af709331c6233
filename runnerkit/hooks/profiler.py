"""Runs torch's profiler over the first epochs or iterations."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from torch.profiler import ProfilerActivity, profile, tensorboard_trace_handler
from torch.profiler import schedule as make_schedule

from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.registry import find_function
from runnerkit.utils.exceptions import WrongType
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.small_files import refuse_link
from runnerkit.utils.suggest import suggestion

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
    """

    needs_training = sends_outside = True

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
    ) -> None:
        if not isinstance(by_epoch, bool):
            raise WrongType(f'by_epoch must be True or False, but got {by_epoch!r}')
        check_whole_number('profile_iters', profile_iters)
        self.by_epoch = by_epoch
        self.profile_iters = profile_iters
        if not isinstance(activities, (list, tuple)):
            raise ValueError(f"activities should be a list such as ['cpu', 'cuda'], but got {type(activities)}")
        for name in activities:
            if str(name).lower() not in _ACTIVITIES:
                raise ValueError(f"activity should be 'cpu' or 'cuda', but got {name!r}")
        self.activities = [_ACTIVITIES[name.lower()] for name in activities]
        if schedule is not None and not isinstance(schedule, dict):
            raise TypeError(f'schedule must be a dict of arguments of torch.profiler.schedule, but got {schedule!r}')
        self.schedule: Callable[[int], Any] | None = None if schedule is None else make_schedule(**schedule)
        self.on_trace_ready = on_trace_ready
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.with_flops = with_flops
        self.json_trace_path = json_trace_path
        self.profiler: profile | None = None  # of rank 0, until the profile ends
        self._until: int | None = None  # the end of the profile; known at its first iteration

    def before_run(self, runner: RunnerView) -> None:
        if runner.rank != 0:
            return
        length, unit = (runner.max_epochs, 'epochs') if self.by_epoch else (runner.max_iters, 'iterations')
        if length is not None and length < self.profile_iters:
            raise ValueError(
                f'profile_iters should not be greater than {length}, the {unit} of the run, got {self.profile_iters}'
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
        self._until = None
        self.profiler.start()
        runner.logger.info('the profiler runs for %d %s', self.profile_iters, unit)

    def before_train_iter(self, runner: RunnerView) -> None:
        if self.profiler is None:
            return
        done = runner.epoch if self.by_epoch else runner.iter
        if self._until is None:
            self._until = done + self.profile_iters
        if done >= self._until:  # an iteration runner has no epoch points
            self._stop()

    def after_train_iter(self, runner: RunnerView) -> None:
        if self.profiler is not None:
            self.profiler.step()
            if not self.by_epoch and runner.iter + 1 == self._until:
                self._stop()

    def after_train_epoch(self, runner: RunnerView) -> None:
        if self.by_epoch and runner.epoch + 1 == self._until:
            self._stop()

    def after_run(self, runner: RunnerView) -> None:
        self._stop()

    def _stop(self) -> None:
        """End the profile, once; also that of a run which ends before its time."""
        profiler, self.profiler = self.profiler, None
        if profiler is None:
            return
        profiler.stop()
        # None: the run was over before the schedule's first iteration, and there is no trace.
        if self.json_trace_path is not None and profiler.profiler is not None:
            profiler.export_chrome_trace(self.json_trace_path)

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
            own = os.path.join(runner.work_dir or '', 'tf_tracing_logs')
            given = options.get('dir_name')
            options['dir_name'] = refuse_link(own) if given is None else os.path.join(runner.work_dir or '', given)
            return tensorboard_trace_handler(**options)
        if isinstance(kind, str) and set('.:') & set(kind):
            return find_function(given, 'on_trace_ready')
        hint = suggestion(str(kind), ['log_trace', 'tb_trace'])
        raise ValueError(f"on_trace_ready's type should be 'log_trace' or 'tb_trace', but got {kind!r}{hint}")
