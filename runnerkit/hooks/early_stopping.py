"""The hook that ends a run whose score no longer improves."""

from __future__ import annotations

from math import isfinite
from typing import Any

from runnerkit.evaluation import RULES, check_score_exists, rule_of
from runnerkit.hooks.evaluation import EvalHook
from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.suggest import suggestion


@HOOKS.register_module()
class EarlyStoppingHook(Hook):
    """Ends the run when a score has not improved for ``patience`` evaluations in a row.

    Every evaluation counts that gives the score: those of an `EvalHook`, of a ``'val'`` entry of the workflow, and of
    ``runner.evaluate``. In a distributed run all ranks stop after the same iteration. The best score and the number of
    evaluations since then are part of every checkpoint. A run that is resumed after it was stopped stops again at once,
    unless ``patience`` is larger now.

    Args:
        monitor: the score's name, such as ``'accuracy'``, ``'loss'`` or ``'clean/accuracy'``.
        patience: how many evaluations in a row may be no better than the best one before; at least 1.
        min_delta: an evaluation is better only if its score is better than the best one by more than this; at least 0.
        rule: whether ``'greater'`` or ``'less'`` is better. None: as the metric declares, else by the score's name, as
            for ``save_best`` of `EvalHook`.
    """

    needs_training = True

    def __init__(self, monitor: str, patience: int = 3, min_delta: float = 0.0, rule: str | None = None) -> None:
        if not isinstance(monitor, str) or not monitor:
            raise WrongType(f"monitor must be the name of a score, such as 'accuracy', but got {monitor!r}")
        check_whole_number('patience', patience)
        if isinstance(min_delta, bool) or not isinstance(min_delta, (int, float)):
            raise WrongType(f'min_delta must be a number of at least 0, but got {min_delta!r}')
        if not (isfinite(min_delta) and min_delta >= 0):
            raise WrongValue(f'min_delta must be a number of at least 0, but got {min_delta!r}')
        if rule is not None and rule not in RULES:
            raise WrongValue(f"rule must be 'greater', 'less' or None, but got {rule!r}{suggestion(str(rule), RULES)}")
        self.monitor, self.patience, self.min_delta, self.given_rule = monitor, patience, min_delta, rule
        self.rule = rule
        self._runner: RunnerView | None = None
        self._begin()

    def _begin(self) -> None:
        self.best: float | None = None
        self.best_iter = 0
        self.waited = 0
        self._others: set[str] = set()  # scores that came while the monitored one has never come

    def before_run(self, runner: RunnerView) -> None:
        self._runner = runner
        asked = any(isinstance(hook, EvalHook) and hook._asks_dataset for hook in runner.hooks)
        if not asked:
            check_score_exists(runner.model, self.monitor, 'monitor')
        self.rule = self.given_rule or rule_of(runner.model, self.monitor)

    def after_evaluate(self, runner: RunnerView, scores: dict[str, float]) -> None:
        if self.monitor not in scores:
            self._miss(scores)
            return
        score = scores[self.monitor]
        is_better = isfinite(score)  # NaN and infinity never are
        if is_better and self.best is not None:
            gain = score - self.best if self.rule == 'greater' else self.best - score
            is_better = gain > self.min_delta
        if is_better:
            self.best, self.best_iter, self.waited = score, runner.completed_iters, 0
        else:
            self.waited += 1
            self._stop_if_due()

    def _stop_if_due(self) -> None:
        if self._runner is None or self.waited < self.patience:
            return
        best = 'it was never a number' if self.best is None else f'{self.best:.6g} at iteration {self.best_iter}'
        times = f'{self.waited} evaluation{"" if self.waited == 1 else "s"}'
        self._runner.stop(f'{self.monitor} has not improved for {times} (best: {best})')

    def _miss(self, scores: dict[str, float]) -> None:
        """An evaluation without the monitored score: of another data set, unless its scores have the same prefix. When
        they come for the second time, all evaluations of that data set have been made."""
        if self.best is not None or self.waited:
            return
        data_set = self.monitor.rpartition('/')[0]
        if any(name in self._others and name.rpartition('/')[0] == data_set for name in scores):
            known = sorted(self._others.union(scores))
            raise KeyError(
                f'monitor={self.monitor!r} of EarlyStoppingHook is no score of this run: its evaluations give the '
                f'numbers {", ".join(known)}{suggestion(self.monitor, known)}'
            )
        self._others.update(scores)

    def after_run(self, runner: RunnerView) -> None:
        if self.best is None and not self.waited and runner.outcome is not None and runner.outcome.ended_well:
            came = (
                f'the evaluations gave {", ".join(sorted(self._others))}' if self._others else 'nothing was evaluated'
            )
            runner.logger.warning(
                'EarlyStoppingHook did nothing: monitor=%r never came, %s%s',
                self.monitor,
                came,
                suggestion(self.monitor, self._others),
            )
        self._runner = None

    def state_dict(self) -> dict[str, Any]:
        """Return the best score, and the number of evaluations since then."""
        return {name: getattr(self, name) for name in ('monitor', 'rule', 'best', 'best_iter', 'waited')}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if (state['monitor'], state['rule']) != (self.monitor, self.rule):
            self._begin()
            if self._runner is not None:
                self._runner.logger.warning(
                    'EarlyStoppingHook starts over: the checkpoint is of a run that monitored %r (%s is better), this '
                    'one monitors %r (%s)',
                    state['monitor'],
                    state['rule'],
                    self.monitor,
                    self.rule,
                )
            return
        self.best, self.best_iter, self.waited = state['best'], state['best_iter'], state['waited']
        self._stop_if_due()
