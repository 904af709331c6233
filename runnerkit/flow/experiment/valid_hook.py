"""The hook that calls the ``valid`` of an experiment."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

from runnerkit.hooks import EvalHook, Hook

#: Arguments of `EvalHook` that mean nothing here, and why.
_WITHOUT_MEANING = {
    'by_epoch': 'an Experiment validates by iterations',
    'test_fn': 'valid is the loop',
    'hooks': 'valid calls no val points',
}


class ValidHook(EvalHook):
    """Calls ``runner.valid()`` every ``interval`` iterations, logs the scores, and keeps the best checkpoint.

    An `Experiment` registers it, with the options of its config's ``evaluation``.

    Args:
        dataloader: the experiment's ``valid_loader``, whatever it is: what it holds is part of checkpoints.
        **options: those of `EvalHook`, counted in iterations, without ``by_epoch``, ``test_fn`` and ``hooks``.

    Raises:
        ValueError: one of these three is given.
    """

    def __init__(self, dataloader: Any, **options: Any) -> None:
        for name, reason in _WITHOUT_MEANING.items():
            if value := options.pop(name, None):
                raise ValueError(f'{name}={value!r}: {reason}, so leave {name} out')
        super().__init__(DataLoader([None]), by_epoch=False, **options)  # type: ignore[arg-type]  # it is never read
        self.dataloader = dataloader
        self._has_warned = False

    @property
    def dataloaders(self) -> dict[str, Any]:
        """One evaluation, which has no name, whatever ``valid`` reads."""
        return {'': self.dataloader}

    def asks_dataset_of(self, loader: Any) -> bool:
        """Never: ``valid`` scores."""
        return False

    def calls(self, hook: Hook, point: str) -> bool:
        """Never: ``valid`` is the user's loop."""
        return False

    def _score(self, runner: Any) -> float | None:
        scores = runner.valid()
        if scores:
            return self._record(runner, scores)
        problem = f'{type(runner).__name__}.valid has returned and reported no scores'
        if self.save_best is not None:
            raise KeyError(f'save_best={self.save_best!r}, but {problem}: return a dict such as dict(accuracy=0.9)')
        if not self._has_warned:
            self._has_warned = True
            runner.logger.info(
                '%s: none are logged, and hooks get none. Return a dict such as dict(accuracy=0.9)', problem
            )
        return None
