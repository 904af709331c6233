"""The ``valid`` of an experiment: an evaluation, wherever it is called, and the hook that calls it in a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import torch
from torch.utils.data import DataLoader

from runnerkit.distributed import reduce_named_sums
from runnerkit.hooks import EvalHook, Hook
from runnerkit.hooks.logger import LoggerHook
from runnerkit.log_buffer import LogBuffer
from runnerkit.utils.report import scope as report_scope


def as_evaluation(valid: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """``valid`` of a subclass, run as an evaluation: what it returns or reports are the scores."""

    @wraps(valid)
    def evaluated(self: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if self.is_validating:  # one of a subclass calls that of its base
            return valid(self, *args, **kwargs)
        self.check_model()
        train_log, self.log_buffer, self.is_validating = self.log_buffer, LogBuffer(), True
        try:
            with self.around_val() as scores, report_scope(self.log_buffer), torch.no_grad():
                self.mode = 'val'
                with self.naming_unset('valid_loader', 'setup_dataloader'):
                    returned = valid(self, *args, **kwargs)
                if returned is not None and not isinstance(returned, Mapping):
                    name = type(self).__name__
                    raise TypeError(f'{name}.valid must return None or a dict of scores, but got {returned!r}')
                self.log_buffer.update(dict(returned or {}))
                self.log_buffer.average(reduce=reduce_named_sums)
                scores.update(self.log_buffer.output)
        finally:
            self.log_buffer, self.is_validating = train_log, False
        if self.lifecycle.own_loop is not None and scores:  # else `ValidHook` hands them to the loggers
            train_log.output.update(scores)
            train_log.ready = True
            for hook in self.hooks:
                if isinstance(hook, LoggerHook):
                    hook.after_val_iter(self)
            train_log.clear_output()
        return dict(scores)

    return evaluated


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
        for name in ('by_epoch', 'test_fn', 'hooks'):
            if value := options.pop(name, None):
                raise ValueError(f'{name}={value!r}: an Experiment validates by iterations, in valid: leave {name} out')
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
        if scores := runner.valid():
            return self._record(runner, scores)
        problem = f'{type(runner).__name__}.valid has returned and reported no scores'
        way_out = 'return a dict such as dict(accuracy=0.9)'
        if self.save_best is not None:
            raise KeyError(f'save_best={self.save_best!r}, but {problem}: {way_out}')
        if not self._has_warned:
            self._has_warned = True
            runner.logger.info('%s: none are logged, and hooks get none; %s', problem, way_out)
        return None
