"""The learning-rate hooks: each is a policy of `runnerkit.optim.schedules` with MMCV's name and arguments.

``base`` in a policy's formula is a group's initial learning rate.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from runnerkit.hooks import param_schedule as engine
from runnerkit.hooks.hook import HOOKS, RunnerView
from runnerkit.hooks.param_schedule import ParamScheduleHook, alias, format_param, make_hook
from runnerkit.optim import schedules
from runnerkit.optim.schedules import annealing_cos, annealing_linear, get_position_from_periods

if TYPE_CHECKING:
    from torch.optim import Optimizer

__all__ = [
    'CosineAnnealingLrUpdaterHook',
    'CosineRestartLrUpdaterHook',
    'CyclicLrUpdaterHook',
    'ExpLrUpdaterHook',
    'FixedLrUpdaterHook',
    'FlatCosineAnnealingLrUpdaterHook',
    'InvLrUpdaterHook',
    'LinearAnnealingLrUpdaterHook',
    'LrUpdaterHook',
    'OneCycleLrUpdaterHook',
    'PolyLrUpdaterHook',
    'StepLrUpdaterHook',
    'annealing_cos',
    'annealing_linear',
    'format_param',
    'get_position_from_periods',
]


class LrUpdaterHook(ParamScheduleHook):
    """Sets learning rates; a policy overrides `get_lr`.

    Its arguments are those of `ParamScheduleHook`.
    """

    key = 'lr'
    minimum_name = 'min_lr'

    base_lr, regular_lr = alias('base'), alias('regular')
    min_lr, min_lr_ratio = alias('minimum'), alias('minimum_ratio')
    get_regular_lr = ParamScheduleHook._regular_values
    get_warmup_lr = ParamScheduleHook._warmup_values
    _set_lr = ParamScheduleHook._set_groups

    def get_lr(self, runner: RunnerView, base_lr: float) -> float:
        """Return the current learning rate, without warm-up, of a group that started with ``base_lr``."""
        return self.value(base_lr, *self._position(runner))


@HOOKS.register_module()
class FixedLrUpdaterHook(LrUpdaterHook):
    """The initial learning rate, after a warm-up if there is one."""

    needs_total = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def get_lr(self, runner: RunnerView, base_lr: float) -> float:
        """Return ``base_lr``."""
        return base_lr


_make = partial(make_hook, LrUpdaterHook)

StepLrUpdaterHook = _make(schedules.Step, 'Multiplies the learning rate by ``gamma`` at each step.', gamma=0.1)
ExpLrUpdaterHook = _make(schedules.Exp, 'Multiplies the learning rate by ``gamma`` in every epoch or iteration.')
PolyLrUpdaterHook = _make(
    schedules.Poly, 'Falls to ``min_lr`` at the end of the run, as a power of what is left of it.'
)
InvLrUpdaterHook = _make(
    schedules.Inv, 'Falls as a power of the number of epochs or iterations, fast at first; it never reaches 0.'
)
CosineAnnealingLrUpdaterHook = _make(
    schedules.CosineAnnealing,
    'Falls along half a cosine wave to ``min_lr``, or to ``min_lr_ratio`` times the initial learning rate.',
)
FlatCosineAnnealingLrUpdaterHook = _make(
    schedules.FlatCosineAnnealing,
    'Stays constant for ``start_percent`` of the run, and then falls along half a cosine wave.',
)
CosineRestartLrUpdaterHook = _make(
    schedules.CosineRestart,
    'Falls along half a cosine wave in every period, and starts again.',
    restart_weights=[1],
)
LinearAnnealingLrUpdaterHook = _make(
    schedules.LinearAnnealing,
    'Falls along a straight line to ``min_lr``, or to ``min_lr_ratio`` times the initial learning rate.',
)
CyclicLrUpdaterHook = _make(
    schedules.Cyclic,
    'Rises and falls in cycles of equal length; by iteration only.',
    by_epoch=False,
    target_ratio=(10, 1e-4),
)


@HOOKS.register_module()
class OneCycleLrUpdaterHook(LrUpdaterHook, schedules.OneCycle):
    """Rises from ``max_lr / div_factor`` to ``max_lr`` and falls to ``max_lr / div_factor / final_div_factor``, once.

    Args:
        max_lr: The peak: a number, a list with one per parameter group, or a dict of either by optimizer.
        total_steps: Length of the cycle in iterations, at least the length of the run; None: the length of the run.
        div_factor: The peak as a multiple of the start.
        final_div_factor: The start as a multiple of the end.
        pct_start, anneal_strategy, three_phase: As for `OneCycle`.
        **kwargs: As for `LrUpdaterHook`.
    """

    def __init__(
        self,
        max_lr: float | list[float] | dict[str, Any],
        total_steps: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = 'cos',
        div_factor: float = 25,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        **kwargs: Any,
    ) -> None:
        self._max_lr = engine.check_per_group('max_lr', max_lr)
        if not (div_factor > 0 and final_div_factor > 0):
            raise ValueError(f'div_factor and final_div_factor must be above 0: {div_factor}, {final_div_factor}')
        self.div_factor = div_factor
        self.final_div_factor = final_div_factor
        self.total_steps = None if total_steps is None else schedules.check_positive('total_steps', total_steps)
        schedules.OneCycle.__init__(self, pct_start, anneal_strategy, three_phase)
        LrUpdaterHook.__init__(self, **{'by_epoch': False, **kwargs})

    def before_run(self, runner: RunnerView) -> None:
        """Let every group start at its peak divided by ``div_factor``, not at its own learning rate."""
        self._check_numbers()
        if self.total_steps is not None and self.total_steps < (runner.max_iters or 0):
            raise ValueError(
                f'total_steps={self.total_steps} ends before the run does, after {runner.max_iters} iterations; '
                'give at least as many, or leave total_steps out'
            )
        self.base_lr = engine.per_optimizer(engine.only(self.optimizer, runner.optimizer), self._starts)

    def _starts(self, name: str, optimizer: Optimizer) -> list[float]:
        starts = [peak / self.div_factor for peak in format_param(name, optimizer, self._max_lr)]
        for group, start in zip(optimizer.param_groups, starts, strict=True):
            group.setdefault('initial_lr', start)
        return starts

    def get_lr(self, runner: RunnerView, base_lr: float) -> float:
        """Return the learning rate, which goes up and down once during the run."""
        corners = (base_lr, base_lr * self.div_factor, base_lr * (1 / self.final_div_factor))
        return self.value(corners, runner.iter, self.total_steps or self._position(runner)[1])
