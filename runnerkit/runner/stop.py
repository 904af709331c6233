"""How a run is asked to stop, and how it ended."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from runnerkit.distributed.signals import StopSignals
from runnerkit.hooks.checkpoint import CheckpointHook
from runnerkit.hooks.hook import Outcome
from runnerkit.hooks.hook_table import HookTable
from runnerkit.runner.progress import Progress

#: The prefix of an inner run's reason to end that is the outer run's.
OUTER = 'the run around it has been asked to end: '


class _StoppedRunner(Protocol):
    """What `Stop` reads of its runner; ``parent`` is another one, or None."""

    logger: logging.Logger
    hooks: HookTable
    progress: Progress
    lifecycle: Any
    evaluator: Any
    snapshots: Any
    parent: Any
    rank: int
    world_size: int


class Stop:
    """The part of the engine that ends a run. It is called last at ``after_train_iter``, after all hooks that save.

    Args:
        runner: the run's runner.

    Attributes:
        reason: why the run was asked to end, or None.
        signal: the signal that asked the last run to stop, even if it came too late to change the outcome.
        outcome: how the last run ended; None before that.
        signals: the signals and requests of the running run; None outside a run.
    """

    def __init__(self, runner: _StoppedRunner) -> None:
        self._runner = runner
        self.reason: str | None = None
        self.signal: signal.Signals | None = None
        self.outcome: Outcome | None = None
        self.signals: StopSignals | None = None
        self._waits = 0  # how often the run has waited for a stream
        self._begun_at = 0  # the iteration with which the run began

    def stop(self, reason: str) -> None:
        """End the run after the running iteration; ``reason`` becomes part of `outcome` and of the log.

        In a distributed run any rank may call it, and all ranks stop after the same iteration: the running one if all
        of them call it there, else the next one that all of them can agree on.
        """
        if self.signals is None or self._runner.world_size == 1:
            self.reason = reason
        else:
            self.signals.request(reason)
        if self._runner.lifecycle.inner is not None:
            self._runner.lifecycle.inner.stop(OUTER + reason)

    @property
    def is_ending(self) -> bool:
        """Whether the run ends at the next boundary, because of a call or a signal."""
        return self.reason is not None or (self.signals is not None and self.signals.pending)

    @property
    def ends_for_outer(self) -> bool:
        """Whether the run ends only because the one around it ends."""
        reason = self.reason
        is_nested = self._runner.parent is not None
        return is_nested and reason is not None and (bool(self.signal) or reason.startswith(OUTER))

    @property
    def heartbeat(self) -> tuple[Any, ...] | None:
        """A value that changes with each iteration of this run and of runs inside it, and while it waits for a stream.

        Its first item is how many iterations this run has done. None outside a run and where a pause may be long: in an
        evaluation, and while a checkpoint is saved.
        """
        runner = self._runner
        is_long = runner.evaluator.scores is not None or runner.snapshots.saver.is_saving
        if self.signals is None or self.outcome is not None or is_long:
            return None
        inner = runner.lifecycle.inner
        inside = None if inner is None else inner.heartbeat
        if inner is not None and inside is None:
            return None
        progress = runner.progress
        return progress.iters - self._begun_at, progress.epoch, progress.iter, progress.inner_iter, self._waits, inside

    @contextmanager
    def listening(self) -> Iterator[StopSignals]:
        """The span in which signals stop the run."""
        runner = self._runner
        self.outcome = self.reason = self.signal = None
        self._begun_at = runner.progress.iters
        outer = runner.parent
        # Only a nested run needs the first one.
        calls = [self.boundary] if outer is None else [self.let_outer_wait, self.boundary]
        if outer is not None and outer.unfinished and outer.stopping.reason is not None:
            self.reason = OUTER + outer.stopping.reason  # another nested run was cut short at this point
        with StopSignals(runner.rank, runner.world_size) as signals:
            self.signals = signals
            for call in calls:
                runner.hooks.listen('after_train_iter', call, is_last=True)
            try:
                yield signals
            finally:
                self.signal = self.signal or signals.received  # one that arrived while the run ended
                for call in calls:
                    runner.hooks.unlisten('after_train_iter', call)

    def end(self, outcome: Outcome) -> None:
        """The run has ended."""
        signals, self.signals, self.outcome = self.signals, None, outcome
        if signals is not None:
            signals.leave(has_failed=outcome.error is not None)

    def end_with(self, inner: Stop) -> None:
        """End at the next boundary because a nested run was stopped, which all ranks ended together."""
        if self.reason is None and inner.reason is not None:
            self.reason, self.signal = inner.reason.removeprefix(OUTER), inner.signal

    def let_outer_wait(self, runner: Any) -> None:
        """After an iteration of a nested run, let the run around it do what it does while it waits."""
        runner.parent.stopping.while_waiting()

    def boundary(self, runner: Any = None) -> None:
        """The end of a training iteration or unit: the run ends here if a signal or any rank requested it. Ranks that
        run the same workflow count the same boundaries."""
        signals = self.signals
        if signals is None:
            return
        signals.boundaries += 1
        if not signals.pending or self.reason is not None or (due := signals.due()) is None:
            return
        self.reason, self.signal = due
        if due.signal is None:
            return
        runner = self._runner
        runner.logger.warning('%s: the run stops after iteration %d', due.reason, runner.progress.iters)
        if not any(isinstance(hook, CheckpointHook) and hook.save_last for hook in runner.hooks):
            runner.logger.warning(
                'nothing is saved: no CheckpointHook with save_last=True is registered, which would save the end of '
                'the run'
            )

    def while_waiting(self) -> bool:
        """Poll saves and hooks while the run waits for data; returns whether the run was asked to end."""
        runner = self._runner
        self._waits += 1
        runner.snapshots.saver.poll(runner)
        for call in runner.hooks.calls['while_waiting']:
            call(runner)
        if runner.parent is not None:
            runner.parent.stopping.while_waiting()
        return self.is_ending
