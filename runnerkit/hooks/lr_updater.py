"""The learning-rate hooks: each is a policy of `runnerkit.optim.schedules` with MMCV's name and arguments.

``base`` in a policy's formula is a group's initial learning rate.
"""

from __future__ import annotations

import operator
from functools import partial
from typing import TYPE_CHECKING, Any

from runnerkit.hooks import param_schedule as engine
from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.hooks.param_schedule import ParamScheduleHook, Values, alias, check_target, format_param
from runnerkit.hooks.torch_scheduler import TorchLrUpdaterHook
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
    'TorchLrUpdaterHook',
    'annealing_cos',
    'annealing_linear',
    'build_lr_hook',
    'format_param',
    'get_position_from_periods',
]


def build_lr_hook(lr_config: Any) -> Hook:
    """Build the learning-rate hook of a config; see `build_policy_hook`. A policy may also be a scheduler of torch.

    Example:
        >>> build_lr_hook(dict(policy='step', step=[8, 11])).gamma
        0.1
    """
    return engine.build_policy_hook(lr_config, 'LrUpdaterHook', TorchLrUpdaterHook)


class LrUpdaterHook(ParamScheduleHook):
    """Sets learning rates; a policy overrides `get_lr`.

    Its arguments are those of `ParamScheduleHook`.
    """

    key = 'lr'

    #: The initial learning rate of every group; with several optimizers, a list for each name.
    base_lr: Values = ()
    #: The learning rates without warm-up, in the same arrangement.
    regular_lr: Values = ()

    min_lr, min_lr_ratio = alias('minimum'), alias('minimum_ratio')

    def before_run(self, runner: RunnerView) -> None:
        """Record the initial learning rates."""
        super().before_run(runner)
        self.base_lr = engine.initial_values(engine.only(self.optimizer, runner.optimizer), 'lr')

    def get_lr(self, runner: RunnerView, base_lr: float) -> float:
        """Return the current learning rate, without warm-up, of a group that started with ``base_lr``."""
        return self.value(base_lr, *self._position(runner))

    def get_regular_lr(self, runner: RunnerView) -> Values:
        """Return every group's learning rate without warm-up."""
        get = partial(self.get_lr, runner)
        # The usual case is written out because it saves a call in each iteration.
        return engine.each(get, self.base_lr) if isinstance(self.base_lr, dict) else list(map(get, self.base_lr))

    def get_warmup_lr(self, cur_iters: int) -> Values:
        """Return every group's learning rate in iteration ``cur_iters`` of the warm-up."""
        return engine.each(partial(operator.mul, self._warmup_factor(cur_iters)), self.regular_lr)

    _set_lr = ParamScheduleHook._set_groups

    def _update(self, runner: RunnerView, recompute: bool, warming_up: bool) -> None:
        if recompute:
            self.regular_lr = self.get_regular_lr(runner)
        self._set_lr(runner, self.get_warmup_lr(runner.iter) if warming_up else self.regular_lr)


@HOOKS.register_module()
class FixedLrUpdaterHook(LrUpdaterHook):
    """The initial learning rate, after a warm-up if there is one."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def get_lr(self, runner: RunnerView, base_lr: float) -> float:
        """Return ``base_lr``."""
        return base_lr


@HOOKS.register_module()
class StepLrUpdaterHook(LrUpdaterHook, schedules.Step):
    """Multiplies the learning rate by ``gamma`` at each step.

    Args:
        min_lr: lower limit; None for none.
    """

    def __init__(self, step: int | list[int], gamma: float = 0.1, min_lr: float | None = None, **kwargs: Any) -> None:
        schedules.Step.__init__(self, step, gamma, min_lr)
        LrUpdaterHook.__init__(self, **kwargs)


@HOOKS.register_module()
class ExpLrUpdaterHook(LrUpdaterHook, schedules.Exp):
    """Multiplies the learning rate by ``gamma`` in every epoch or iteration."""

    def __init__(self, gamma: float, **kwargs: Any) -> None:
        schedules.Exp.__init__(self, gamma)
        LrUpdaterHook.__init__(self, **kwargs)


@HOOKS.register_module()
class PolyLrUpdaterHook(LrUpdaterHook, schedules.Poly):
    """Falls to ``min_lr`` at the end of the run, as a power of what is left of it.

    Args:
        min_lr: the learning rate at the end.
    """

    def __init__(self, power: float = 1.0, min_lr: float = 0.0, **kwargs: Any) -> None:
        schedules.Poly.__init__(self, power, min_lr)
        LrUpdaterHook.__init__(self, **kwargs)


@HOOKS.register_module()
class InvLrUpdaterHook(LrUpdaterHook, schedules.Inv):
    """Falls as a power of the number of epochs or iterations, fast at first; it never reaches 0."""

    def __init__(self, gamma: float, power: float = 1.0, **kwargs: Any) -> None:
        schedules.Inv.__init__(self, gamma, power)
        LrUpdaterHook.__init__(self, **kwargs)


class _AnnealedLrHook(LrUpdaterHook):
    """Ends at ``min_lr``, or at ``min_lr_ratio`` times the initial learning rate; exactly one is given.

    Args:
        min_lr: the learning rate at the end; give this or ``min_lr_ratio``.
        min_lr_ratio: the end as a share of the initial learning rate.
    """

    def __init__(self, min_lr: float | None = None, min_lr_ratio: float | None = None, **kwargs: Any) -> None:
        check_target('lr', min_lr, min_lr_ratio)
        self.minimum, self.minimum_ratio = min_lr, min_lr_ratio
        LrUpdaterHook.__init__(self, **kwargs)


@HOOKS.register_module()
class CosineAnnealingLrUpdaterHook(_AnnealedLrHook, schedules.CosineAnnealing):
    """Falls along half a cosine wave to ``min_lr``, or to ``min_lr_ratio`` times the initial learning rate."""


@HOOKS.register_module()
class FlatCosineAnnealingLrUpdaterHook(_AnnealedLrHook, schedules.FlatCosineAnnealing):
    """Stays constant for ``start_percent`` of the run, and then falls along half a cosine wave."""

    def __init__(
        self,
        start_percent: float = 0.75,
        min_lr: float | None = None,
        min_lr_ratio: float | None = None,
        **kwargs: Any,
    ) -> None:
        schedules.FlatCosineAnnealing.__init__(self, start_percent)
        _AnnealedLrHook.__init__(self, min_lr, min_lr_ratio, **kwargs)


@HOOKS.register_module()
class CosineRestartLrUpdaterHook(_AnnealedLrHook, schedules.CosineRestart):
    """Falls along half a cosine wave in every period, and starts again."""

    def __init__(
        self,
        periods: list[int],
        restart_weights: list[float] = [1],  # noqa: B006 (MMCV's signature; it is never changed)
        min_lr: float | None = None,
        min_lr_ratio: float | None = None,
        **kwargs: Any,
    ) -> None:
        schedules.CosineRestart.__init__(self, periods, restart_weights)
        _AnnealedLrHook.__init__(self, min_lr, min_lr_ratio, **kwargs)


@HOOKS.register_module()
class LinearAnnealingLrUpdaterHook(_AnnealedLrHook, schedules.LinearAnnealing):
    """Falls along a straight line to ``min_lr``, or to ``min_lr_ratio`` times the initial learning rate."""


@HOOKS.register_module()
class CyclicLrUpdaterHook(LrUpdaterHook, schedules.Cyclic):
    """Rises and falls in cycles of equal length; by iteration only."""

    def __init__(
        self,
        by_epoch: bool = False,
        target_ratio: float | tuple[float, float] = (10, 1e-4),
        cyclic_times: int = 1,
        step_ratio_up: float = 0.4,
        anneal_strategy: str = 'cos',
        gamma: float = 1,
        **kwargs: Any,
    ) -> None:
        schedules.Cyclic.__init__(self, target_ratio, cyclic_times, step_ratio_up, anneal_strategy, gamma)
        LrUpdaterHook.__init__(self, by_epoch, **kwargs)


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
