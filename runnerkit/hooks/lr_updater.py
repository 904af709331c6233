"""The learning-rate policies, one named hook each; the formulas are `runnerkit.optim.schedules`.

In the formulas, ``p`` is the number of epochs done, or of iterations with ``by_epoch=False``, ``P`` how many the run
has, and ``lr`` a group's initial learning rate.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.hooks.param_schedule import (
    Group,
    ParamScheduleHook,
    Values,
    alias,
    assign,
    build_policy_hook,
    computed,
    each,
    groups_of,
    pair,
    per_optimizer,
)
from runnerkit.hooks.schedule_settings import (
    check_by_iteration,
    check_cycles,
    check_per_group,
    check_positive,
    check_share,
    check_steps,
    check_target,
    cycle_ratios,
    find_annealing,
    format_param,
)
from runnerkit.hooks.torch_scheduler import TorchLrUpdaterHook
from runnerkit.optim import schedules
from runnerkit.optim.schedules import annealing_cos, annealing_linear, get_position_from_periods
from runnerkit.utils.exceptions import WrongValue

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
    """The learning-rate hook that a config stands for; see `build_policy_hook`. Policies may be torch's schedulers too.

    Example:
        >>> build_lr_hook(dict(policy='step', step=[8, 11])).gamma
        0.1
    """
    return build_policy_hook(lr_config, 'LrUpdaterHook', TorchLrUpdaterHook)


class LrUpdaterHook(ParamScheduleHook):
    """Sets learning rates; a policy overrides `get_lr`.

    Args:
        by_epoch: Whether the schedule counts epochs or iterations.
        warmup: 'constant', 'linear' or 'exp'; None for no warm-up.
        warmup_iters: Length of the warm-up in iterations, or in epochs with ``warmup_by_epoch``.
        warmup_ratio: Where the warm-up starts, as a share of the regular learning rate, in (0, 1].
        warmup_by_epoch: Whether ``warmup_iters`` counts epochs.
    """

    key, initial_key = 'lr', 'initial_lr'
    _get_regular, _get_warmup, _set_values = 'get_regular_lr', 'get_warmup_lr', '_set_lr'

    #: The initial learning rate of every group; of several optimizers, a list under each one's name.
    base_lr = alias('base')
    #: The learning rates without warm-up, in the same arrangement.
    regular_lr = alias('regular')

    def get_lr(self, runner: RunnerView, base_lr: float) -> float:
        """The learning rate now of a group that started with ``base_lr``, without warm-up."""
        raise NotImplementedError(f'{type(self).__name__} has to say what the learning rate is: override get_lr')

    def get_regular_lr(self, runner: RunnerView) -> Values:
        """Every group's learning rate without warm-up."""
        return computed(self.get_lr, runner, self.base)

    def get_warmup_lr(self, cur_iters: int) -> Values:
        """Every group's learning rate in the warm-up's iteration ``cur_iters``."""
        factor = self.warmup_factor(cur_iters)
        return each(self.regular_lr, lambda lr: lr * factor)

    _set_lr = ParamScheduleHook._write_groups

    def _read(self, group: Group) -> float:
        return float(group['lr'])

    def _write(self, group: Group, value: float) -> None:
        assign(group, 'lr', value)


@HOOKS.register_module()
class FixedLrUpdaterHook(LrUpdaterHook):
    """``lr``, but for a warm-up."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def get_lr(self, runner: RunnerView, base_lr: float) -> float:
        """``lr``."""
        return base_lr


@HOOKS.register_module()
class StepLrUpdaterHook(LrUpdaterHook):
    """``max(lr * gamma ** n, min_lr)``, where n is the number of steps taken.

    Args:
        step: The length of every step, or the rising list of the epochs (iterations) at which one is taken.
        gamma: Factor of each step.
        min_lr: Lower limit; None for none.
        **kwargs: As for `LrUpdaterHook`.
    """

    def __init__(self, step: int | list[int], gamma: float = 0.1, min_lr: float | None = None, **kwargs: Any) -> None:
        check_steps(step)
        self.step = step
        self.gamma = gamma
        self.min_lr = min_lr
        super().__init__(**kwargs)

    def get_lr(self, runner: RunnerView, base_lr: float) -> float:
        """``max(lr * gamma ** n, min_lr)``."""
        return schedules.step(base_lr, self.progress(runner), self.step, self.gamma, self.min_lr)


@HOOKS.register_module()
class ExpLrUpdaterHook(LrUpdaterHook):
    """``lr * gamma ** p``.

    Args:
        gamma: Factor per epoch (iteration).
        **kwargs: As for `LrUpdaterHook`.
    """

    def __init__(self, gamma: float, **kwargs: Any) -> None:
        self.gamma = gamma
        super().__init__(**kwargs)

    def get_lr(self, runner: RunnerView, base_lr: float) -> float:
        """``lr * gamma ** p``."""
        return schedules.exponential(base_lr, self.progress(runner), self.gamma)


@HOOKS.register_module()
class PolyLrUpdaterHook(LrUpdaterHook):
    """``(lr - min_lr) * (1 - p / P) ** power + min_lr``.

    Args:
        power: 1 for a straight line; the larger, the sooner it falls.
        min_lr: Where it ends.
        **kwargs: As for `LrUpdaterHook`.
    """

    def __init__(self, power: float = 1.0, min_lr: float = 0.0, **kwargs: Any) -> None:
        self.power = power
        self.min_lr = min_lr
        super().__init__(**kwargs)

    def get_lr(self, runner: RunnerView, base_lr: float) -> float:
        """``(lr - min_lr) * (1 - p / P) ** power + min_lr``."""
        return schedules.poly(base_lr, self.progress(runner), self.total(runner), self.power, self.min_lr)


@HOOKS.register_module()
class InvLrUpdaterHook(LrUpdaterHook):
    """``lr * (1 + gamma * p) ** -power``.

    Args:
        gamma: How fast it falls, at least 0.
        power: Exponent.
        **kwargs: As for `LrUpdaterHook`.
    """

    def __init__(self, gamma: float, power: float = 1.0, **kwargs: Any) -> None:
        self.gamma = gamma
        self.power = power
        super().__init__(**kwargs)

    def get_lr(self, runner: RunnerView, base_lr: float) -> float:
        """``lr * (1 + gamma * p) ** -power``."""
        return schedules.inverse(base_lr, self.progress(runner), self.gamma, self.power)


class _ToTargetLrHook(LrUpdaterHook):
    """A policy that ends at ``min_lr``, or at ``min_lr_ratio`` times ``lr``; exactly one is given."""

    def __init__(self, min_lr: float | None = None, min_lr_ratio: float | None = None, **kwargs: Any) -> None:
        check_target('lr', min_lr, min_lr_ratio)
        self.min_lr = min_lr
        self.min_lr_ratio = min_lr_ratio
        super().__init__(**kwargs)

    def target(self, base_lr: float) -> float:
        """Where a group that started with ``base_lr`` ends."""
        return schedules.target(base_lr, self.min_lr, self.min_lr_ratio)


@HOOKS.register_module()
class CosineAnnealingLrUpdaterHook(_ToTargetLrHook):
    """``end + (lr - end) * (1 + cos(pi * p / P)) / 2``.

    Args:
        min_lr: The end; or
        min_lr_ratio: the end as a multiple of ``lr``.
        **kwargs: As for `LrUpdaterHook`.
    """

    def get_lr(self, runner: RunnerView, base_lr: float) -> float:
        """``end + (lr - end) * (1 + cos(pi * p / P)) / 2``."""
        return annealing_cos(base_lr, self.target(base_lr), self.progress(runner) / self.total(runner))


@HOOKS.register_module()
class FlatCosineAnnealingLrUpdaterHook(_ToTargetLrHook):
    """``lr`` for the first part of the run, then as CosineAnnealing over the rest of it.

    Args:
        start_percent: Where the fall begins, as a share of the run in [0, 1).
        min_lr: The end; or
        min_lr_ratio: the end as a multiple of ``lr``.
        **kwargs: As for `LrUpdaterHook`.
    """

    def __init__(
        self,
        start_percent: float = 0.75,
        min_lr: float | None = None,
        min_lr_ratio: float | None = None,
        **kwargs: Any,
    ) -> None:
        check_share('start_percent', start_percent)
        self.start_percent = start_percent
        super().__init__(min_lr, min_lr_ratio, **kwargs)

    def get_lr(self, runner: RunnerView, base_lr: float) -> float:
        """``lr``, then half a cosine wave."""
        target = self.target(base_lr)
        return schedules.flat_cosine(base_lr, target, self.progress(runner), self.total(runner), self.start_percent)


@HOOKS.register_module()
class CosineRestartLrUpdaterHook(_ToTargetLrHook):
    """As CosineAnnealing in every period anew, starting at ``end + weight * (lr - end)``.

    Args:
        periods: Lengths of the periods, in epochs (iterations); together at least the run's length.
        restart_weights: How high each period starts, one weight per period.
        min_lr: The end of every period; or
        min_lr_ratio: the end as a multiple of ``lr``.
        **kwargs: As for `LrUpdaterHook`.
    """

    def __init__(
        self,
        periods: list[int],
        restart_weights: list[float] = [1],  # noqa: B006 (MMCV's signature; it is never changed)
        min_lr: float | None = None,
        min_lr_ratio: float | None = None,
        **kwargs: Any,
    ) -> None:
        if len(periods) != len(restart_weights):
            raise WrongValue(
                f'every period has its weight, but there are {len(periods)} periods, {list(periods)}, '
                f'and {len(restart_weights)} restart_weights, {list(restart_weights)}'
            )
        for period in periods:
            check_positive('periods', period)
        self.periods = periods
        self.restart_weights = restart_weights
        self.cumulative_periods = list(accumulate(periods))
        super().__init__(min_lr, min_lr_ratio, **kwargs)

    def get_lr(self, runner: RunnerView, base_lr: float) -> float:
        """Half a cosine wave per period."""
        target = self.target(base_lr)
        return schedules.cosine_restart(base_lr, target, self.progress(runner), self.periods, self.restart_weights)


@HOOKS.register_module()
class LinearAnnealingLrUpdaterHook(_ToTargetLrHook):
    """``lr + (end - lr) * p / P``.

    Args:
        min_lr: The end; or
        min_lr_ratio: the end as a multiple of ``lr``.
        **kwargs: As for `LrUpdaterHook`.
    """

    def get_lr(self, runner: RunnerView, base_lr: float) -> float:
        """``lr + (end - lr) * p / P``."""
        return annealing_linear(base_lr, self.target(base_lr), self.progress(runner) / self.total(runner))


@HOOKS.register_module()
class CyclicLrUpdaterHook(LrUpdaterHook):
    """Cycles of equal length, up from ``lr`` to ``top * lr`` and down to ``bottom * lr``; by iteration only.

    Args:
        by_epoch: False.
        target_ratio: ``(top, bottom)``; a single number is the top, and the bottom is that by 100,000.
        cyclic_times: Number of cycles in the run, at least 1.
        step_ratio_up: Share of a cycle that goes up, in [0, 1).
        anneal_strategy: 'cos' or 'linear', the way up and down.
        gamma: What is left of a peak's height over ``lr`` in the next cycle, in (0, 1].
        **kwargs: As for `LrUpdaterHook`.
    """

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
        check_by_iteration(self, by_epoch)
        check_cycles(cyclic_times, step_ratio_up, gamma)
        self.target_ratio = cycle_ratios(target_ratio)
        self.cyclic_times = cyclic_times
        self.step_ratio_up = step_ratio_up
        self.gamma = gamma
        self.anneal_func = find_annealing(anneal_strategy)
        super().__init__(by_epoch, **kwargs)

    def get_lr(self, runner: RunnerView, base_lr: float) -> float:
        """Up and down again in every cycle."""
        return schedules.cyclic(
            base_lr,
            runner.iter,
            self.total(runner),
            self.cyclic_times,
            self.step_ratio_up,
            self.target_ratio,
            self.gamma,
            self.anneal_func,
        )


@HOOKS.register_module()
class OneCycleLrUpdaterHook(LrUpdaterHook):
    """From ``max_lr / div_factor`` up to ``max_lr`` and far down; by iteration only.

    ============  =============================================================================================
    two phases    ``max_lr / div_factor``, ``max_lr``, ``max_lr / div_factor / final_div_factor``
    three phases  ``max_lr / div_factor``, ``max_lr``, ``max_lr / div_factor``, and from there to the same end
    ============  =============================================================================================

    Args:
        max_lr: The peak: a number, a list with one per parameter group, or a dict of either by optimizer.
        total_steps: Length of the cycle in iterations, at least that of the run; None for the run's.
        pct_start: Share of the cycle that goes up, in [0, 1].
        anneal_strategy: 'cos' or 'linear', the way up and down.
        div_factor: The peak as a multiple of the start.
        final_div_factor: The start as a multiple of the end.
        three_phase: Whether to come back to the start before going further down.
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
        kwargs.setdefault('by_epoch', False)
        check_by_iteration(self, kwargs['by_epoch'])
        check_per_group('max_lr', max_lr)
        if total_steps is not None:
            check_positive('total_steps', total_steps)
        check_share('pct_start', pct_start)
        self._max_lr = max_lr
        self.total_steps = total_steps
        self.pct_start = pct_start
        self.anneal_func = find_annealing(anneal_strategy)
        self.div_factor = div_factor
        self.final_div_factor = final_div_factor
        self.three_phase = three_phase
        super().__init__(**kwargs)

    def before_run(self, runner: RunnerView) -> None:
        """Let every group start below its peak, instead of at its own learning rate."""
        if self.total_steps is not None and self.total_steps < (runner.max_iters or 0):
            raise ValueError(
                f'total_steps={self.total_steps} ends before the run does, after {runner.max_iters} iterations; '
                'give at least as many, or leave total_steps out'
            )
        self.base_lr = per_optimizer(runner.optimizer, self._starts)
        for group, start in pair(groups_of(runner.optimizer), self.base_lr):
            group.setdefault('initial_lr', start)

    def _starts(self, name: str, optimizer: Optimizer) -> list[float]:
        return [peak / self.div_factor for peak in format_param(name, optimizer, self._max_lr)]

    def get_lr(self, runner: RunnerView, base_lr: float) -> float:
        """Once up and down over the whole run."""
        peak, end = base_lr * self.div_factor, base_lr * (1 / self.final_div_factor)
        corners = (base_lr, peak, base_lr, end) if self.three_phase else (base_lr, peak, end)
        total = self.total_steps or self.total(runner)
        return schedules.one_cycle(corners, runner.iter, total, self.pct_start, self.anneal_func)
