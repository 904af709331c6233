"""The hook that tells a study how a trial does, and obeys its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from runnerkit.distributed import broadcast_object
from runnerkit.hooks.evaluation import EvalHook
from runnerkit.hooks.hook import Hook, RunnerView

#: Why a run was stopped that a study has pruned.
PRUNED = 'pruned by the study'


class ReportHook(Hook):
    """Sends the scores of each evaluation to a study, and stops the run if the study prunes it.

    In an epoch runner, evaluations inside of an epoch are not sent: a run could not be repeated up to there.

    A resumed run sends the scores of its last evaluation once more before it continues: the answer may not have been
    obeyed when it was killed.

    Args:
        send: ``send(step, scores) -> prune``, called on the first rank; ``step`` counts completed epochs, or iterations
            in an iteration runner.
        names: the scores that the study waits for; evaluations without any of them are not sent.

    Attributes:
        last: the step and the scores that were sent last; None before the first time.
        latest: the last moment at which one of ``names`` was measured, sent or not: the completed iterations, and all
            scores of that moment.
        measured: the names of all scores that evaluations have given.
        best_by: the score, and ``'greater'`` or ``'less'``, by which the run keeps its best checkpoint; None if it
            keeps none.
        has_begun: whether a training iteration has begun.
    """

    needs_training = sends_outside = True

    def __init__(self, send: Callable[[int, dict[str, float]], bool], names: tuple[str, ...]) -> None:
        self.send, self.names = send, names
        self.last: tuple[int, dict[str, float]] | None = None
        self.latest: tuple[int, dict[str, float]] = 0, {}
        self.measured: set[str] = set()
        self.best_by: tuple[str, str | None] | None = None
        self.has_begun = False
        self._epochs = 0  # that were completed before the last iteration

    def before_train_iter(self, runner: RunnerView) -> None:
        """Note in which epoch this is."""
        self._epochs, self.has_begun = runner.completed_epochs, True

    def after_evaluate(self, runner: RunnerView, scores: Mapping[str, Any]) -> None:
        self.measured.update(scores)
        if not any(name in scores for name in self.names):
            return
        now = runner.completed_iters
        self.latest = now, {name: float(score.value) for name, score in runner.scores.items() if score.iter == now}
        if runner.by_epoch and runner.completed_epochs <= self._epochs:
            return
        step = runner.completed_epochs if runner.by_epoch else runner.completed_iters
        self.last = step, {name: float(score.value) for name, score in runner.scores.items()}
        self._ask(runner)

    def after_resume(self, runner: RunnerView) -> None:
        """Send the last scores once more."""
        if self.last is not None:
            self._ask(runner)

    def after_run(self, runner: RunnerView) -> None:
        for hook in runner.hooks:
            if isinstance(hook, EvalHook) and hook.save_best is not None:
                self.best_by = hook.key_indicator, hook.rule

    def _ask(self, runner: RunnerView) -> None:
        prune = False
        if runner.rank == 0 and self.last is not None:
            step, scores = self.last
            prune = self.send(step, dict(scores))
        if broadcast_object(prune):
            runner.stop(PRUNED)

    def state_dict(self) -> dict[str, Any]:
        """Return the last scores that were sent, and those of the last moment."""
        iters, scores = self.latest
        found: dict[str, Any] = {'latest': {'iter': iters, 'scores': dict(scores)}, 'measured': sorted(self.measured)}
        return found if self.last is None else {**found, 'step': self.last[0], 'scores': dict(self.last[1])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if 'step' in state:
            self.last = state['step'], dict(state['scores'])
        latest = state['latest']
        self.latest, self.measured = (latest['iter'], dict(latest['scores'])), set(state['measured'])
