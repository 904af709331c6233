"""The counters of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from runnerkit.data.kinds import length_of


@dataclass
class Progress:
    """The counters of a run. It is called first at every point, so hooks and checkpoints read current values.

    ``epoch``, ``iter`` and ``inner_iter`` are MMCV's 0-based indices of what is running. The counts of what is *done*
    follow from them: a running iteration is done from ``after_train_iter`` on, an epoch from ``after_train_epoch`` on.

    Attributes:
        by_epoch: whether the unit of the run is the epoch.
        epoch: the running epoch; in the iteration runner, the running pass over the loader trained on last.
        iter: the running training iteration, over all epochs.
        inner_iter: the running iteration within its epoch; in the iteration runner, within its workflow entry.
        began: the first iteration of the open epoch.
        epoch_is_open: whether a training epoch has begun and not ended; always False in the iteration runner, whose
            readers know their own passes.
        is_in_iter: whether ``iter`` has begun and is not done.
        iter_is_done: whether ``iter`` is done already.
        waits_for_epoch: whether the end of ``iter`` is that of its epoch, to which a user's loop adds more code.
        epoch_is_done: whether ``epoch`` is done already.
        samples: of the open epoch, how many samples of its order all ranks together had consumed when the state was
            loaded; None if the ranks' shares are unknown (batch samplers, streams).
        entry: the index of the workflow's entry.
        unit: how many units (epochs or iterations) of that entry are done.
        running: the index of the running unit; None if the loop left it.
        ended_at: after how many iterations `after_train_epoch` was last called.
    """

    by_epoch: bool = field(default=True, compare=False)
    epoch: int = 0
    iter: int = 0
    inner_iter: int = field(default=0, compare=False)
    began: int = field(default=0, compare=False)
    epoch_is_open: bool = False
    is_in_iter: bool = field(default=False, compare=False)
    iter_is_done: bool = False
    waits_for_epoch: bool = field(default=False, compare=False)
    epoch_is_done: bool = False
    samples: int | None = field(default=0, compare=False)
    entry: int = 0
    unit: int = 0
    running: int | None = field(default=0, compare=False)
    ended_at: int = field(default=0, compare=False)

    @property
    def iters(self) -> int:
        """Completed training iterations. An epoch run with other ranks or another batch size counts them as its own."""
        return self.iter + self.iter_is_done

    @property
    def epochs(self) -> int:
        """Completed training epochs; in the iteration runner, completed passes over the loader trained on last."""
        return self.epoch + self.epoch_is_done

    @property
    def trained_epoch(self) -> int:
        """The number, from 1, of the epoch (pass) with the last completed iteration; 0 before the first one."""
        if self.by_epoch:
            return self.epochs + (self.batches > 0)
        return self.epoch + 1 if self.iters else 0

    @property
    def batches(self) -> int:
        """How many batches of the open epoch this rank has trained on."""
        return self.iters - self.began if self.epoch_is_open else 0

    @property
    def last_point(self) -> str:
        """The point that ended what is done; that of an evaluation, if training has not begun, or its next epoch."""
        if not self.iters or (self.epoch_is_open and not self.batches):
            return 'after_val_iter'
        return 'after_train_epoch' if self.by_epoch and not self.epoch_is_open else 'after_train_iter'

    # --- points ------------------------------------------------------------------------------------------------------

    def before_train_epoch(self, runner: Any) -> None:
        """An epoch begins, unless it was open when the run was saved."""
        if not self.epoch_is_open:
            self.epoch_is_open, self.iter_is_done, self.began = True, False, self.iter

    def after_train_iter(self, runner: Any) -> None:
        """The running iteration is done."""
        self.is_in_iter, self.iter_is_done = False, True
        if not self.by_epoch:
            self.unit = self.inner_iter + 1

    def after_train_epoch(self, runner: Any) -> None:
        """The running epoch is done, unless ``max_iters`` cut it short."""
        plan, self.ended_at = runner.plan, self.iters
        if not plan.by_iters or self.iters < (plan.max_iters or 0) or self.batches == length_of(runner.data_loader):
            self.epoch_is_open, self.epoch_is_done = False, True
            self.end_unit()

    def after_val_iter(self, runner: Any) -> None:
        """In the iteration runner, the running unit is done."""
        if not self.by_epoch:
            self.unit = self.inner_iter + 1

    # --- the loop ----------------------------------------------------------------------------------------------------

    def end_unit(self) -> None:
        """The running unit of the workflow's entry is done."""
        if self.running is not None:
            self.unit = self.running + 1

    def leave_unit(self) -> None:
        """The loop leaves the running unit, which may run again."""
        self.running = None

    def next_iter(self) -> None:
        """Advance to the next iteration: this one is done."""
        self.iter, self.iter_is_done = self.iter + 1, False

    def next_epoch(self) -> None:
        """Advance to the next epoch if this one is done."""
        self.epoch, self.epoch_is_done = self.epochs, False

    def begin_run(self) -> None:
        """A run begins. An iteration of the former run that an error interrupted after its end is done."""
        self.iter, self.is_in_iter, self.iter_is_done = self.iters, False, False
        self.next_epoch()

    def begin_unit(self, entry: int, unit: int) -> None:
        """A unit of a workflow entry begins."""
        self.entry, self.unit, self.running = entry, unit, unit

    def count_batches(self, batches: int) -> None:
        """Set how many batches of the open epoch this rank has trained on, in the current batch size."""
        self.began = self.iters - batches

    def close_epoch(self) -> None:
        """No epoch is open: the next one starts from its beginning."""
        self.epoch_is_open = False

    @contextmanager
    def as_at(self, point: str | None) -> Iterator[None]:
        """Within it, the counters are what hooks read at ``point``."""
        iters = point == 'after_train_iter'
        epochs = point == 'after_train_epoch' and not self.epoch_is_open
        if iters:
            self.inner_iter = (self.batches if self.by_epoch else self.unit) - 1
        self.iter, self.iter_is_done = self.iter - iters, iters
        self.epoch, self.epoch_is_done = self.epoch - epochs, epochs
        try:
            yield
        finally:
            self.iter, self.iter_is_done = self.iters, False
            self.epoch, self.epoch_is_done = self.epochs, False

    # --- in checkpoints ----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The counts of what is done."""
        return {
            'epochs': self.epochs,
            'iters': self.iters,
            'epoch_is_open': self.epoch_is_open,
            'batches': self.batches,
            'entry': self.entry,
            'units': self.unit,
            'ended_at': self.ended_at,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; missing counts are 0."""
        self.epoch, self.iter = state.get('epochs', 0), state.get('iters', 0)
        self.is_in_iter = self.iter_is_done = self.epoch_is_done = False
        self.epoch_is_open = state.get('epoch_is_open', False)
        self.began = self.iter - state.get('batches', 0)
        self.samples = state.get('samples', 0)
        self.ended_at = state.get('ended_at', self.iter)  # older files do not say it
        self.entry, self.unit, self.running = state.get('entry', 0), state.get('units', 0), None
