"""The workflow of a run, and its length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from runnerkit.data.kinds import is_unbounded, length_of
from runnerkit.runner.progress import Progress
from runnerkit.runner.stop import Stop
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

#: What a ``train`` has to do in addition to training.
COUNTING = (
    "self.mode = 'train' and self.call_hook('before_train_epoch') at its beginning, self._iter += 1 after each "
    'iteration and self._epoch += 1 at its end'
)


class _PlannedRunner(Protocol):
    """What a plan reads of its runner, whose methods are the units of the workflow."""

    by_epoch: bool
    has_own_train: bool
    model: Any
    data_loader: Any
    progress: Progress
    stopping: Stop
    world_size: int

    def validate_entry(self, data_loader: Any, **kwargs: Any) -> None: ...


class Plan:
    """The workflow over its loaders, and how long it is repeated. Iterating over it yields one unit after another.

    Args:
        runner: the run's runner.
        max_epochs: after how many epochs the run ends.
        max_iters: after how many iterations the run ends.

    Attributes:
        max_epochs: as the argument; None if unknown (yet).
        max_iters: as the argument; None if unknown (yet).
        by_iters: whether ``max_iters`` ends the run, possibly inside an epoch.
        workflow: pairs of a mode and how many units of it.
    """

    def __init__(self, runner: _PlannedRunner, max_epochs: int | None, max_iters: int | None) -> None:
        self._runner = runner
        self.max_epochs, self.max_iters = max_epochs, max_iters
        self.by_iters = max_iters is not None
        self.workflow: list[tuple[str, int]] = []
        self._units: dict[str, Callable[..., Any]] = {}

    def prepare(self, data_loaders: Sequence[Any], workflow: Workflow) -> None:
        """Check the workflow and compute the run's length, which hooks read."""
        runner = self._runner
        check_workflow(data_loaders, workflow, runner)
        agree_on_lengths(data_loaders, workflow, runner)
        loader = first_training_loader(data_loaders, workflow, runner)
        if runner.by_epoch:
            if self.max_epochs is None and not self.by_iters:
                raise WrongValue(
                    'max_epochs must be specified before run: EpochBasedRunner(…, max_epochs=12), or max_iters'
                )
            if self.max_epochs is None:
                self.max_epochs = epochs_in(self.max_iters, loader)
            elif not self.by_iters:
                self.max_iters = iters_in(self.max_epochs, loader)
        else:
            if self.max_iters is None:
                first = data_loaders[0] if loader is None and data_loaders else loader
                self.max_iters = iters_in(self.max_epochs, first)
            is_endless = self.max_iters is None and bool(data_loaders) and all(map(is_unbounded, data_loaders))
            if self.max_iters is None and not is_endless:
                raise WrongValue('max_iters must be specified before run: IterBasedRunner(…, max_iters=40000)')
            self.by_iters = not is_endless  # a stream ends the run itself
        self._units = {mode: unit_of(runner, mode) for mode, _ in workflow}
        if 'val' in self._units and not runner.by_epoch:
            self._units['val'] = runner.validate_entry

    def begin(self, workflow: Workflow) -> None:
        """A run of ``workflow`` begins; a changed workflow begins with its first entry."""
        former, self.workflow = self.workflow, [(mode, n) for mode, n in workflow]
        if former and self.workflow != former:
            self._runner.progress.begin_unit(0, 0)

    @property
    def is_done(self) -> bool:
        """Whether the run has reached its length."""
        progress = self._runner.progress
        done, limit = (progress.iter, self.max_iters) if self.by_iters else (progress.epoch, self.max_epochs)
        return limit is not None and done >= limit and not self.awaits_end_of_epoch

    @property
    def awaits_end_of_epoch(self) -> bool:
        """Whether the resumed run was saved between the last iteration before ``max_iters`` and the end of its epoch:
        only ``after_train_epoch`` is left."""
        progress = self._runner.progress
        is_cut_here = self.by_iters and progress.epoch_is_open and progress.iters == self.max_iters
        return is_cut_here and progress.ended_at != progress.iters

    @property
    def epoch_is_over(self) -> bool:
        """Whether the epoch that the loop left is over. A stopped epoch stays open for a resume; one that ``max_iters``
        cuts short is closed."""
        runner = self._runner
        return runner.stopping.reason is None or runner.progress.batches == length_of(runner.data_loader)

    @property
    def trains(self) -> bool:
        """Whether the workflow has an entry that trains."""
        return any(trains(mode, self._runner) for mode, _ in self.workflow)

    def trains_in(self, mode: str) -> bool:
        """Whether an entry of this mode trains."""
        return trains(mode, self._runner)

    @property
    def has_modes(self) -> bool:
        """Whether an entry trains with the step of another mode than ``'train'``."""
        return any(mode != 'train' and trains(mode, self._runner) for mode, _ in self.workflow)

    @property
    def length(self) -> str:
        """The run's length in words."""
        if self.by_iters:
            return f'{self.max_iters} iterations'
        return 'as much as the stream has' if self.max_epochs is None else f'{self.max_epochs} epochs'

    def follow(self, loader: Any) -> None:
        """Recompute ``max_iters`` for the training ``loader``. Earlier epochs may have had other lengths, with another
        number of ranks."""
        runner, progress = self._runner, self._runner.progress
        if self.by_iters:
            return
        whole = iters_in(self.max_epochs, loader)
        if whole is not None and sum(trains(mode, runner) for mode, _ in self.workflow) == 1:
            whole += progress.iter - progress.batches - progress.epoch * len(loader)
        self.max_iters = whole

    def __iter__(self) -> Iterator[tuple[int, Callable[..., Any]]]:
        """Units from the current one until the run is done or stops: the index of the workflow entry, and the runner's
        method."""
        runner, progress, stop = self._runner, self._runner.progress, self._runner.stopping
        began: tuple[int, int] | None = None  # done before this round; None: it was entered in the middle
        units = [self._units[mode] for mode, _ in self.workflow]
        training = [trains(mode, runner) for mode, _ in self.workflow]
        has_passed = False  # the boundary between two training iterations
        while stop.reason is None:
            entry, unit, begins = progress.entry, progress.unit, False
            # As `is_done`, without its call.
            done, limit = (progress.iter, self.max_iters) if self.by_iters else (progress.epoch, self.max_epochs)
            is_done = limit is not None and done >= limit and not (progress.epoch_is_open and self.awaits_end_of_epoch)
            while True:
                if entry >= len(units):
                    if began is not None and began[0] == done and limit is not None and any(training) and not is_done:
                        name = type(runner).__name__
                        raise RuntimeError(f'{name}.train counts nothing, so the run would never end: add {COUNTING}')
                    # A workflow without training would never end, so it runs once.
                    if is_done or began == (done, progress.iter):
                        progress.begin_unit(entry, unit)
                        return
                    entry, unit, begins = 0, 0, True
                if (entry, unit) == (0, 0):
                    began = None if progress.epoch_is_open else (done, progress.iter)
                if unit < self.workflow[entry][1] and (begins or not (is_done and training[entry])):
                    break
                entry, unit = entry + 1, 0
            progress.begin_unit(entry, unit)
            # The validation iterations of an entry are one evaluation, which is not interrupted.
            if not (has_passed and training[entry]) and (runner.by_epoch or unit == 0 or training[entry]):
                stop.boundary()
                if stop.reason is not None:
                    return
            yield entry, units[entry]
            # A training iteration ends with a boundary. Several ranks count boundaries alike; one rank alone also
            # obeys a signal that has come since, on leaving the rings of the iteration.
            has_passed = training[entry] and not runner.by_epoch and not runner.has_own_train
            has_passed = has_passed and not (stop.signals and runner.world_size == 1 and stop.signals.pending)
            if progress.running is None:  # the loop left the unit
                began, has_passed = None, False
            elif progress.unit != progress.running + 1 and (stop.reason is None or not progress.epoch_is_open):
                progress.end_unit()
