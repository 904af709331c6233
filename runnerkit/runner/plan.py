"""What a run is going to do: the workflow over its loaders, and how long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from runnerkit.data.kinds import is_unbounded, length_of
from runnerkit.runner.workflow import (
    Workflow,
    agree_on_lengths,
    check_workflow,
    epochs_in,
    first_training_loader,
    iters_in,
    trains,
    unit_of,
)
from runnerkit.utils.exceptions import WrongValue


class Plan:
    """The workflow over its loaders, and how long it is repeated. Iterating over it gives one unit after another.

    Args:
        runner: whose plan.
        max_epochs: after how many epochs the run ends.
        max_iters: after how many iterations the run ends.

    Attributes:
        max_epochs: as the argument; None where that is not known (yet).
        max_iters: as the argument; None where that is not known (yet).
        by_iters: whether ``max_iters`` ends the run, maybe inside an epoch.
        workflow: pairs of a mode and how many units of it.
    """

    def __init__(self, runner: Any, max_epochs: int | None, max_iters: int | None) -> None:
        self._runner = runner
        self.max_epochs, self.max_iters = max_epochs, max_iters
        self.by_iters = max_iters is not None
        self.workflow: list[tuple[str, int]] = []
        self._units: dict[str, Callable[..., Any]] = {}

    def prepare(self, data_loaders: Sequence[Any], workflow: Workflow) -> None:
        """Check the workflow, and find out the run's length before the first hook asks.

        Raises:
            ValueError: it has no length.
        """
        runner = self._runner
        check_workflow(data_loaders, workflow, runner)
        agree_on_lengths(data_loaders, workflow, runner)
        loader = first_training_loader(data_loaders, workflow, runner)
        if runner.by_epoch:
            self._measure_epochs(loader)
        else:
            self._measure_iterations(data_loaders[0] if loader is None and data_loaders else loader, data_loaders)
        self._units = {mode: unit_of(runner, mode) for mode, _ in workflow}
        if 'val' in self._units and not runner.by_epoch:
            self._units['val'] = runner.validate_entry

    def _measure_epochs(self, loader: Any) -> None:
        if self.max_epochs is None and not self.by_iters:
            raise WrongValue(
                'max_epochs must be specified before run: EpochBasedRunner(…, max_epochs=12), or max_iters'
            )
        if self.max_epochs is None:
            self.max_epochs = epochs_in(self.max_iters, loader)
        elif not self.by_iters:
            self.max_iters = iters_in(self.max_epochs, loader)

    def _measure_iterations(self, loader: Any, data_loaders: Sequence[Any]) -> None:
        if self.max_iters is None:
            self.max_iters = iters_in(self.max_epochs, loader)
        is_endless = self.max_iters is None and bool(data_loaders) and all(map(is_unbounded, data_loaders))
        if self.max_iters is None and not is_endless:
            raise WrongValue('max_iters must be specified before run: IterBasedRunner(…, max_iters=40000)')
        self.by_iters = not is_endless  # a stream ends the run itself

    def begin(self, workflow: Workflow) -> None:
        """A run of ``workflow`` begins; one that is another than before begins with its first entry."""
        former, self.workflow = self.workflow, [(mode, n) for mode, n in workflow]
        if former and self.workflow != former:
            self._runner.progress.begin_workflow()

    @property
    def is_done(self) -> bool:
        """Whether the run has its length."""
        progress = self._runner.progress
        done, limit = (progress.iter, self.max_iters) if self.by_iters else (progress.epoch, self.max_epochs)
        return limit is not None and done >= limit

    @property
    def epoch_is_over(self) -> bool:
        """Whether the epoch that the loop has left is over: one that was stopped stays open for a resume, one that the
        run's ``max_iters`` cuts short is closed."""
        runner = self._runner
        return runner.stopping.reason is None or runner.progress.batches == length_of(runner.data_loader)

    @property
    def trains(self) -> bool:
        """Whether the workflow trains at all."""
        return any(trains(mode, self._runner) for mode, _ in self.workflow)

    @property
    def has_modes(self) -> bool:
        """Whether the workflow trains with steps of other modes than ``'train'``."""
        return any(mode != 'train' and trains(mode, self._runner) for mode, _ in self.workflow)

    @property
    def length(self) -> str:
        """How long the run is, in words."""
        if self.by_iters:
            return f'{self.max_iters} iterations'
        return 'as much as the stream has' if self.max_epochs is None else f'{self.max_epochs} epochs'

    @property
    def kind(self) -> str:
        """What the run counts, in words."""
        return 'by epoch' if self._runner.by_epoch else 'by iteration'

    def follow(self, loader: Any) -> None:
        """The run's length follows the ``loader`` that is trained on. Earlier epochs may have had other lengths, with
        another number of ranks."""
        runner, progress = self._runner, self._runner.progress
        if self.by_iters:
            return
        whole = iters_in(self.max_epochs, loader)
        if whole is not None and sum(trains(mode, runner) for mode, _ in self.workflow) == 1:
            whole += progress.iter - progress.batches - progress.epoch * len(loader)
        self.max_iters = whole

    def __iter__(self) -> Iterator[tuple[int, Callable[..., Any]]]:
        """One unit after another, from where the run is until it is done or stops: the index of its workflow entry, and
        the runner's method."""
        runner, progress, stop = self._runner, self._runner.progress, self._runner.stopping
        began: tuple[int, int] | None = None  # this round of the workflow; None: by going on or back into it
        units = [self._units[mode] for mode, _ in self.workflow]
        training = [trains(mode, runner) for mode, _ in self.workflow]
        has_passed = False  # the boundary between two training iterations
        while stop.reason is None:
            entry, unit, begins = progress.entry, progress.unit, False
            # As `is_done`, without its call.
            done, limit = (progress.iter, self.max_iters) if self.by_iters else (progress.epoch, self.max_epochs)
            is_done = limit is not None and done >= limit
            while True:
                if entry >= len(units):
                    # A workflow that has not moved on would never end: one without any training runs once.
                    if is_done or began == (progress.epoch, progress.iter):
                        progress.begin_unit(entry, unit)
                        return
                    entry, unit, begins = 0, 0, True
                if (entry, unit) == (0, 0):
                    began = (progress.epoch, progress.iter)
                if unit < self.workflow[entry][1] and (begins or not (is_done and training[entry])):
                    break
                entry, unit = entry + 1, 0
            progress.begin_unit(entry, unit)
            # The validation iterations of an entry are one evaluation, which is not cut.
            if not (has_passed and training[entry]) and (runner.by_epoch or unit == 0 or training[entry]):
                stop.boundary()
                if stop.reason is not None:
                    return
            yield entry, units[entry]
            # A training iteration ends with one.
            has_passed = training[entry] and not runner.by_epoch and not runner.has_own_train
            if progress.running is None:  # it was left
                began, has_passed = None, False
            elif progress.unit != progress.running + 1 and (stop.reason is None or not progress.epoch_is_open):
                progress.end_unit()
