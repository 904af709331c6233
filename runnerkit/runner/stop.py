"""Whether a run ends at the next boundary, why, and how it has ended."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from runnerkit.distributed.signals import StopSignals
from runnerkit.hooks.checkpoint import CheckpointHook
from runnerkit.hooks.hook import Outcome
from runnerkit.hooks.nesting import OUTER


class Stop:
    """The part of the engine that ends a run. It is called last at ``after_train_iter``, behind whatever saves.

    Args:
        runner: whose run.

    Attributes:
        reason: why the run has been asked to end; None if it has not.
        signal: the signal that asked the last run to stop, also if that came too late to change its outcome.
        outcome: how the last run ended; None before that.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self.reason: str | None = None
        self.signal: signal.Signals | None = None
        self.outcome: Outcome | None = None
        self._signals: StopSignals | None = None
        self._waits = 0  # how often the run has waited for a stream
        self._begun_at = 0  # the iteration with which the run began

    def stop(self, reason: str) -> None:
        """End the run after the running iteration; ``reason`` becomes part of `outcome` and of the log.

        In a distributed run any rank may call it, and all ranks stop after the same iteration: after the running one
        if all of them call it there, else as soon as all of them can.
        """
        if self._signals is None or self._runner.world_size == 1:
            self.reason = reason
        else:
            self._signals.request(reason)
        if self._runner.nest.inner is not None:
            self._runner.nest.inner.stop(OUTER + reason)

    @property
    def is_running(self) -> bool:
        """Whether a run has begun and not ended."""
        return self._signals is not None

    @property
    def is_ending(self) -> bool:
        """Whether the run has been asked to end, by a call or a signal: it does at the next boundary."""
        return self.reason is not None or (self._signals is not None and self._signals.pending)

    @property
    def ends_for_outer(self) -> bool:
        """Whether the run ends only because the one around it ends."""
        reason = self.reason
        is_nested = self._runner.parent is not None
        return is_nested and reason is not None and (bool(self.signal) or reason.startswith(OUTER))

    @property
    def heartbeat(self) -> tuple[Any, ...] | None:
        """What changes with each iteration of this run and of those inside it, and while it waits for a stream.

        Its first item is how many iterations this run has done.

        None outside of a run, and where a pause may be long: in an evaluation, and while a checkpoint is saved.
        """
        runner = self._runner
        is_long = runner.evaluator.scores is not None or runner.snapshots.is_saving
        if self._signals is None or self.outcome is not None or is_long:
            return None
        inner = runner.nest.inner
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
        # Only a nested run pays for the former.
        calls = [self.boundary] if runner.parent is None else [self.let_outer_wait, self.boundary]
        with StopSignals(runner.rank, runner.world_size) as signals:
            self._signals = signals
            for call in calls:
                runner.hooks.listen('after_train_iter', call, is_last=True)
            try:
                yield signals
            finally:
                for call in calls:
                    runner.hooks.unlisten('after_train_iter', call)

    def end(self, outcome: Outcome) -> None:
        """The run has ended."""
        signals, self._signals, self.outcome = self._signals, None, outcome
        if signals is not None:
            signals.leave(has_failed=outcome.error is not None)

    def note_signal(self, received: signal.Signals | None) -> None:
        """A signal that has come while the run ended."""
        self.signal = self.signal or received

    def end_with(self, inner: Stop) -> None:
        """End at the next boundary, as a nested run did; on every rank, since all of them have ended it together."""
        if self.reason is None and inner.reason is not None:
            self.reason, self.signal = inner.reason.removeprefix(OUTER), inner.signal

    def let_outer_wait(self, runner: Any) -> None:
        """After an iteration of a nested run: the run around it has waited for that."""
        runner.parent.stopping.while_waiting()

    def boundary(self, runner: Any = None) -> None:
        """The end of a training iteration, or the place between two units: the run ends here if a signal or some rank
        has asked for it. Ranks that run the same workflow count their boundaries alike."""
        signals = self._signals
        if signals is None:
            return
        signals.boundaries += 1
        if not signals.pending or self.reason is not None or (due := signals.due()) is None:
            return
        self.reason, self.signal = due
        if due.signal is None:
            return
        runner = self._runner
        runner.logger.warning('%s: the run stops after iteration %d', due.reason, runner.completed_iters)
        if not any(isinstance(hook, CheckpointHook) and hook.save_last for hook in runner.hooks):
            runner.logger.warning(
                'nothing is saved: no CheckpointHook with save_last=True is registered, which would save the end of '
                'the run'
            )

    def while_waiting(self) -> bool:
        """What the run does while it waits for data; returns whether it has been asked to end."""
        runner = self._runner
        self._waits += 1
        runner.snapshots.poll(runner)
        for call in runner.hooks.calls['while_waiting']:
            call(runner)
        if runner.parent is not None:
            runner.parent.stopping.while_waiting()
        return self.is_ending
