"""The log in memory, as a list of records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runnerkit.hooks.hook import HOOKS, RunnerView
from runnerkit.hooks.logger.base import LoggerHook
from runnerkit.optim.named import named_optimizers, other_rates
from runnerkit.utils.numbers import plain_number


@HOOKS.register_module()
class HistoryHook(LoggerHook):
    """Keeps in memory, on every rank, what the run's other loggers log, and the scores of each evaluation.

    It has no interval, so it changes nothing in the logs: there is a record for each of their lines.
    Register it after them.

    Attributes:
        records: dicts of numbers and texts, in the order of the run, which ``pandas.DataFrame`` takes as they are.
            Each has ``mode`` (``'train'``, another mode that trains, or ``'val'``), ``epoch`` (from 1, that of the last
            training iteration), and ``step`` (the training iterations completed). A record of a training has ``lr``
            (``lr/<name>`` for each of several optimizers, and for other rates of parameter groups, see
            `runnerkit.optim.named.other_rates`) and the averages of what was logged, one of an evaluation has its
            scores.
    """

    def __init__(self) -> None:
        super().__init__()
        self.records: list[dict[str, Any]] = []

    def before_epoch(self, runner: RunnerView) -> None:
        """Leave it to the other loggers to empty the buffer."""

    def after_train_iter(self, runner: RunnerView) -> None:
        """Keep what another logger has averaged."""
        if runner.log_buffer.ready:
            self._log(runner)

    def after_val_epoch(self, runner: RunnerView) -> None:
        """End a validation's line, of which `after_evaluate` keeps the scores."""
        self._log(runner)

    def after_evaluate(self, runner: RunnerView, scores: dict[str, float]) -> None:
        """Keep the scores."""
        self._keep(runner, 'val', scores)

    def after_roll_back(self, runner: RunnerView) -> None:
        """Forget what the run will log again."""
        self.records[:] = [record for record in self.records if record['step'] <= runner.completed_iters]

    def log(self, runner: RunnerView) -> None:
        """Nothing: only the first rank is asked to log."""

    def _log(self, runner: RunnerView) -> None:
        mode = self.get_mode(runner)
        if mode != 'val':
            firsts = {name: one.param_groups[0]['lr'] for name, one in named_optimizers(runner.optimizer).items()}
            rates = {**firsts, **other_rates(runner.optimizer)}
            lr = {f'lr/{name}' if name else 'lr': rate for name, rate in rates.items()}
            self._keep(runner, mode, {**lr, **runner.log_buffer.output})
        super()._log(runner)

    def _keep(self, runner: RunnerView, mode: str, values: Mapping[str, Any]) -> None:
        plain = {name: plain_number(value) for name, value in values.items()}
        kept = {name: value for name, value in plain.items() if isinstance(value, (int, float, str))}
        self.records.append({'mode': mode, 'epoch': runner.trained_epoch, 'step': runner.completed_iters, **kept})
