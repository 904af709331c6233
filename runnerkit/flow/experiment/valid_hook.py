"""The hook that calls the ``valid`` of an experiment."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

from runnerkit.hooks import EvalHook, Hook


class ValidHook(EvalHook):
    """Calls ``runner.valid()`` every ``interval`` iterations, logs the scores, and keeps the best checkpoint.

    An `Experiment` registers it. Its arguments are those of `EvalHook`, for its config's ``evaluation``.

    Args:
        dataloader: the experiment's ``valid_loader``, whatever it is: what it holds is part of checkpoints.
        interval: iterations between two validations, at least 1.
        start: the first iteration (1-based) after which to validate; None: the first interval.
        save_best: the score that decides which checkpoint is the best; ``'auto'`` takes the first one.
        rule: whether ``'greater'`` or ``'less'`` is better; None: as its name says.
        greater_keys: parts of score names for which more is better.
        less_keys: parts of score names for which less is better.
        out_dir: where the best checkpoint is saved; see `EvalHook`.
        file_client_args: see `EvalHook`.
        by_epoch: False; an experiment counts iterations.
    """

    def __init__(
        self,
        dataloader: Any,
        interval: int = 1,
        start: int | None = None,
        save_best: str | None = None,
        rule: str | None = None,
        greater_keys: Any = None,
        less_keys: Any = None,
        out_dir: str | None = None,
        file_client_args: dict[str, Any] | None = None,
        by_epoch: bool = False,
    ) -> None:
        if by_epoch:
            raise ValueError('by_epoch=True: an Experiment validates by iterations, so leave by_epoch out')
        super().__init__(
            DataLoader([None]),  # type: ignore[arg-type]  # EvalHook needs one; it is never read
            start=start,
            interval=interval,
            by_epoch=False,
            save_best=save_best,
            rule=rule,
            greater_keys=greater_keys,
            less_keys=less_keys,
            out_dir=out_dir,
            file_client_args=file_client_args,
        )
        self.dataloader = dataloader
        self._has_told = False

    @property
    def dataloaders(self) -> dict[str, Any]:
        """What ``valid`` reads is its own affair: one evaluation, which has no name."""
        return {'': self.dataloader}

    def asks_dataset_of(self, loader: Any) -> bool:
        """Never: ``valid`` scores."""
        return False

    def calls(self, hook: Hook, point: str) -> bool:
        """Never: ``valid`` is a loop of the user's own."""
        return False

    def _score(self, runner: Any) -> float | None:
        scores = runner.valid()
        if scores:
            return self._record(runner, scores)
        told = f'{type(runner).__name__}.valid has returned and reported no scores'
        if self.save_best is not None:
            raise KeyError(f'save_best={self.save_best!r}, but {told}: return a dict such as dict(accuracy=0.9)')
        if not self._has_told:
            self._has_told = True
            runner.logger.info(
                '%s: none are logged, and hooks get none. Return a dict such as dict(accuracy=0.9)', told
            )
        return None
