"""The hook that runs another runner inside the run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runnerkit.hooks.hook import Hook, RunnerView
from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.numbers import check_whole_number

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(eq=False, repr=False)
class NestedRunHook(Hook):
    """Runs another runner inside the run, every so often: an evaluation, a probe, a short training. Subclass it and
    implement `make`; ``docs/nested_runs.md`` has one that is run.

    The nested run has its own hooks, counters, log and random generators, and ``child.parent`` is the run around it.
    Its scores become the outer run's as ``<name>/<score>``. When the outer run is asked to end, so is the nested one,
    which starts again from its beginning in the resumed run.

    Args:
        name: of the nested runs, in logs and checkpoints; unique.
        interval: epochs or iterations between two of them.
        by_epoch: True counts epochs, False iterations.
    """

    nests_runs = True
    needs_training = True

    name: str = 'nested'
    interval: int = 1
    by_epoch: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or os.path.basename(self.name) != self.name:
            raise WrongValue(f"name must be a name such as 'probe', also of a folder, but got {self.name!r}")
        check_whole_number('interval', self.interval)

    def make(self, runner: RunnerView) -> tuple[Any, Sequence[Any], Sequence[tuple[str, int]]]:
        """Make a nested run: the runner with its hooks, its loaders, and its workflow. Called for each of them.

        Raises:
            NotImplementedError: a subclass does not override it.
        """
        raise NotImplementedError(
            f'{type(self).__name__} must override make(runner): return the nested runner, its data loaders and its '
            "workflow, such as (child, [loader], [('val', 1)])"
        )

    def collect(self, runner: RunnerView, child: Any) -> None:
        """Take the results of the nested run that is over. By default its scores are logged and become ``scores``."""
        for name, score in child.scores.items():
            runner.scores[f'{self.name}/{name}'] = score._replace(iter=runner.completed_iters)
            runner.log_buffer.update({f'{self.name}/{name}': score.value})

    def work_dir_of(self, runner: RunnerView) -> str | None:
        """A folder for the nested run that begins now: ``<work dir>/<name>/iter_<n>``."""
        if runner.work_dir is None:
            return None
        return os.path.join(runner.work_dir, self.name, f'iter_{runner.completed_iters}')

    def after_train_iter(self, runner: RunnerView) -> None:
        if not self.by_epoch and self.every_n_iters(runner, self.interval):
            self._run(runner)

    def after_train_epoch(self, runner: RunnerView) -> None:
        if self.by_epoch and self.every_n_epochs(runner, self.interval):
            self._run(runner)

    def after_resume(self, runner: RunnerView) -> None:
        """Start the nested run again that was open when the checkpoint was saved."""
        if self.name in runner.unfinished:
            self._run(runner)

    def _run(self, runner: RunnerView) -> None:
        with runner.nested(self.name):
            made: Any = self.make(runner)
            if not isinstance(made, tuple) or len(made) != 3:
                raise WrongType(
                    f'{type(self).__name__}.make must return the nested runner, its data loaders and its workflow, '
                    f"such as (child, [loader], [('val', 1)]), but returned {made!r}"
                )
            child, loaders, workflow = made
            child.run(list(loaders), list(workflow))
            self.collect(runner, child)
