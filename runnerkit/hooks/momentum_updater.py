"""The momentum hooks: each is a policy of `runnerkit.optim.schedules` with MMCV's name and arguments.

They set a group's ``momentum``, or the first of its ``betas`` if it has no momentum. ``base`` in a policy's formula is
a group's initial momentum.
"""

from __future__ import annotations

import operator
from functools import partial
from typing import TYPE_CHECKING, Any

from runnerkit.hooks import param_schedule as engine
from runnerkit.hooks.hook import HOOKS, RunnerView
from runnerkit.hooks.param_schedule import ParamScheduleHook, alias, format_param, make_hook
from runnerkit.optim import schedules

if TYPE_CHECKING:
    from torch.optim import Optimizer

__all__ = [
    'CosineAnnealingMomentumUpdaterHook',
    'CyclicMomentumUpdaterHook',
    'LinearAnnealingMomentumUpdaterHook',
    'MomentumUpdaterHook',
    'OneCycleMomentumUpdaterHook',
    'StepMomentumUpdaterHook',
]


class MomentumUpdaterHook(ParamScheduleHook):
    """Sets momenta; a policy overrides `get_momentum`. A warm-up divides by the factor that multiplies learning rates.

    Its arguments are those of `ParamScheduleHook`.
    """

    key = 'momentum'
    minimum_name = 'min_momentum'
    warm = staticmethod(operator.truediv)

    base_momentum, regular_momentum = alias('base'), alias('regular')
    min_momentum, min_momentum_ratio = alias('minimum'), alias('minimum_ratio')
    get_regular_momentum = ParamScheduleHook._regular_values
    get_warmup_momentum = ParamScheduleHook._warmup_values
    _set_momentum = ParamScheduleHook._set_groups

    def get_momentum(self, runner: RunnerView, base_momentum: float) -> float:
        """Return the current momentum, without warm-up, of a group that started with ``base_momentum``."""
        return self.value(base_momentum, *self._position(runner))

    def __init__(
        self,
        by_epoch: bool = True,
        warmup: str | None = None,
        warmup_iters: int = 0,
        warmup_ratio: float = 0.9,
        warmup_by_epoch: bool = False,
        optimizer: str | None = None,
    ) -> None:
        super().__init__(by_epoch, warmup, warmup_iters, warmup_ratio, warmup_by_epoch, optimizer)


_make = partial(make_hook, MomentumUpdaterHook)

StepMomentumUpdaterHook = _make(schedules.Step, 'Multiplies the momentum by ``gamma`` at each step.', gamma=0.5)
CosineAnnealingMomentumUpdaterHook = _make(
    schedules.CosineAnnealing,
    'Goes along half a cosine wave to ``min_momentum``, or to ``min_momentum_ratio`` times the initial momentum.',
)
LinearAnnealingMomentumUpdaterHook = _make(
    schedules.LinearAnnealing,
    'Goes along a straight line to ``min_momentum``, or to ``min_momentum_ratio`` times the initial momentum.',
)
CyclicMomentumUpdaterHook = _make(
    schedules.Cyclic,
    'Falls and rises in cycles of equal length; by iteration only.',
    by_epoch=False,
    target_ratio=(0.85 / 0.95, 1.0),
    gamma=1.0,
)


@HOOKS.register_module()
class OneCycleMomentumUpdaterHook(MomentumUpdaterHook, schedules.OneCycle):
    """Falls from ``max_momentum`` to ``base_momentum`` and rises again, once: low where the learning rate is high.

    Args:
        base_momentum: The lower value: a number, a list with one per parameter group, or a dict of either by optimizer.
        max_momentum: The higher value, in the same forms.
        pct_start, anneal_strategy, three_phase: As for `OneCycle`.
        **kwargs: As for `MomentumUpdaterHook`.
    """

    def __init__(
        self,
        base_momentum: float | list[float] | dict[str, Any] = 0.85,
        max_momentum: float | list[float] | dict[str, Any] = 0.95,
        pct_start: float = 0.3,
        anneal_strategy: str = 'cos',
        three_phase: bool = False,
        **kwargs: Any,
    ) -> None:
        self._base_momentum = engine.check_per_group('base_momentum', base_momentum)
        self._max_momentum = engine.check_per_group('max_momentum', max_momentum)
        schedules.OneCycle.__init__(self, pct_start, anneal_strategy, three_phase)
        MomentumUpdaterHook.__init__(self, **{'by_epoch': False, **kwargs})

    def before_run(self, runner: RunnerView) -> None:
        """Look up the two values of every group; `get_momentum` is given this dict instead of an initial momentum."""
        super().before_run(runner)
        self.base_momentum = engine.per_optimizer(engine.only(self.optimizer, runner.optimizer), self._limits)

    def _limits(self, name: str, optimizer: Optimizer) -> list[dict[str, float]]:
        lows = format_param(name, optimizer, self._base_momentum)
        highs = format_param(name, optimizer, self._max_momentum)
        return [{'base_momentum': low, 'max_momentum': high} for low, high in zip(lows, highs, strict=True)]

    def get_momentum(  # type: ignore[override]  # as in MMCV
        self, runner: RunnerView, param_group: dict[str, float]
    ) -> float:
        """Return the momentum, which goes down and up once during the run."""
        low, high = param_group['base_momentum'], param_group['max_momentum']
        return self.value((high, low, high), *self._position(runner))
