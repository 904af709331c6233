"""The momentum policies, one named hook each; the formulas are `runnerkit.optim.schedules`.

What is set is a group's ``momentum``, or where it has none, the first of its ``betas``. In the formulas, ``p`` is the
number of epochs done, or of iterations with ``by_epoch=False``, ``P`` how many the run has, and ``m`` a group's
initial momentum.
"""

from __future__ import annotations

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
    per_optimizer,
)
from runnerkit.hooks.schedule_settings import (
    check_by_iteration,
    check_cycles,
    check_per_group,
    check_share,
    check_steps,
    check_target,
    cycle_ratios,
    find_annealing,
    format_param,
)
from runnerkit.optim import schedules
from runnerkit.optim.schedules import annealing_cos, annealing_linear

if TYPE_CHECKING:
    from torch.optim import Optimizer

__all__ = [
    'CosineAnnealingMomentumUpdaterHook',
    'CyclicMomentumUpdaterHook',
    'LinearAnnealingMomentumUpdaterHook',
    'MomentumUpdaterHook',
    'OneCycleMomentumUpdaterHook',
    'StepMomentumUpdaterHook',
    'build_momentum_hook',
]


def build_momentum_hook(momentum_config: Any) -> Hook:
    """The momentum hook that a config stands for; see `build_policy_hook`.

    Example:
        >>> build_momentum_hook(dict(policy='step', step=[8, 11])).gamma
        0.5
    """
    return build_policy_hook(momentum_config, 'MomentumUpdaterHook')


class MomentumUpdaterHook(ParamScheduleHook):
    """Sets momenta; a policy overrides `get_momentum`. A warm-up divides by what it multiplies learning rates with.

    Args:
        by_epoch: Whether the schedule counts epochs or iterations.
        warmup: 'constant', 'linear' or 'exp'; None for no warm-up.
        warmup_iters: Length of the warm-up in iterations, or in epochs with ``warmup_by_epoch``.
        warmup_ratio: The warm-up starts at the regular momentum divided by this, in (0, 1].
        warmup_by_epoch: Whether ``warmup_iters`` counts epochs.
    """

    key, initial_key = 'momentum', 'initial_momentum'
    _get_regular, _get_warmup, _set_values = 'get_regular_momentum', 'get_warmup_momentum', '_set_momentum'

    #: The initial momentum of every group; of several optimizers, a list under each one's name.
    base_momentum = alias('base')
    #: The momenta without warm-up, in the same arrangement.
    regular_momentum = alias('regular')

    def __init__(
        self,
        by_epoch: bool = True,
        warmup: str | None = None,
        warmup_iters: int = 0,
        warmup_ratio: float = 0.9,
        warmup_by_epoch: bool = False,
    ) -> None:
        super().__init__(by_epoch, warmup, warmup_iters, warmup_ratio, warmup_by_epoch)

    def get_momentum(self, runner: RunnerView, base_momentum: Any) -> float:
        """The momentum now of a group that started with ``base_momentum``, without warm-up."""
        raise NotImplementedError(f'{type(self).__name__} has to say what the momentum is: override get_momentum')

    def get_regular_momentum(self, runner: RunnerView) -> Values:
        """Every group's momentum without warm-up."""
        return computed(self.get_momentum, runner, self.base)

    def get_warmup_momentum(self, cur_iters: int) -> Values:
        """Every group's momentum in the warm-up's iteration ``cur_iters``."""
        factor = self.warmup_factor(cur_iters)
        return each(self.regular_momentum, lambda momentum: momentum / factor)

    _set_momentum = ParamScheduleHook._write_groups

    def _read(self, group: Group) -> float:
        if 'momentum' in group:
            return float(group['momentum'])
        if 'betas' in group:
            return float(group['betas'][0])
        raise ValueError(
            f'{type(self).__name__} needs an optimizer with momentum or betas, but this one has '
            f'{", ".join(sorted(group.keys() - {"params"}))}; use one such as SGD or Adam, or leave out momentum_config'
        )

    def _write(self, group: Group, value: float) -> None:
        if 'momentum' in group:
            assign(group, 'momentum', value)
        else:
            group['betas'] = (value, *group['betas'][1:])


@HOOKS.register_module()
class StepMomentumUpdaterHook(MomentumUpdaterHook):
    """``max(m * gamma ** n, min_momentum)``, where n is the number of steps taken.

    Args:
        step: The length of every step, or the rising list of the epochs (iterations) at which one is taken.
        gamma: Factor of each step.
        min_momentum: Lower limit; None for none.
        **kwargs: As for `MomentumUpdaterHook`.
    """

    def __init__(
        self, step: int | list[int], gamma: float = 0.5, min_momentum: float | None = None, **kwargs: Any
    ) -> None:
        check_steps(step)
        self.step = step
        self.gamma = gamma
        self.min_momentum = min_momentum
        super().__init__(**kwargs)

    def get_momentum(self, runner: RunnerView, base_momentum: float) -> float:
        """``max(m * gamma ** n, min_momentum)``."""
        return schedules.step(base_momentum, self.progress(runner), self.step, self.gamma, self.min_momentum)


class _ToTargetMomentumHook(MomentumUpdaterHook):
    """A policy that ends at ``min_momentum``, or at ``min_momentum_ratio`` times ``m``; exactly one is given."""

    def __init__(
        self, min_momentum: float | None = None, min_momentum_ratio: float | None = None, **kwargs: Any
    ) -> None:
        check_target('momentum', min_momentum, min_momentum_ratio)
        self.min_momentum = min_momentum
        self.min_momentum_ratio = min_momentum_ratio
        super().__init__(**kwargs)

    def target(self, base_momentum: float) -> float:
        """Where a group that started with ``base_momentum`` ends."""
        return schedules.target(base_momentum, self.min_momentum, self.min_momentum_ratio)


@HOOKS.register_module()
class CosineAnnealingMomentumUpdaterHook(_ToTargetMomentumHook):
    """``end + (m - end) * (1 + cos(pi * p / P)) / 2``.

    Args:
        min_momentum: The end; or
        min_momentum_ratio: the end as a multiple of ``m``.
        **kwargs: As for `MomentumUpdaterHook`.
    """

    def get_momentum(self, runner: RunnerView, base_momentum: float) -> float:
        """``end + (m - end) * (1 + cos(pi * p / P)) / 2``."""
        return annealing_cos(base_momentum, self.target(base_momentum), self.progress(runner) / self.total(runner))


@HOOKS.register_module()
class LinearAnnealingMomentumUpdaterHook(_ToTargetMomentumHook):
    """``m + (end - m) * p / P``.

    Args:
        min_momentum: The end; or
        min_momentum_ratio: the end as a multiple of ``m``.
        **kwargs: As for `MomentumUpdaterHook`.
    """

    def get_momentum(self, runner: RunnerView, base_momentum: float) -> float:
        """``m + (end - m) * p / P``."""
        return annealing_linear(base_momentum, self.target(base_momentum), self.progress(runner) / self.total(runner))


@HOOKS.register_module()
class CyclicMomentumUpdaterHook(MomentumUpdaterHook):
    """Cycles of equal length, from ``m`` to ``first * m`` and on to ``last * m``; by iteration only.

    Args:
        by_epoch: False.
        target_ratio: ``(first, last)``; a single number is the first, and the last is that by 100,000.
        cyclic_times: Number of cycles in the run, at least 1.
        step_ratio_up: Share of a cycle that leads to ``first``, in [0, 1).
        anneal_strategy: 'cos' or 'linear', the way there and back.
        gamma: What is left of the distance between ``first * m`` and ``m`` in the next cycle, in (0, 1].
        **kwargs: As for `MomentumUpdaterHook`.
    """

    def __init__(
        self,
        by_epoch: bool = False,
        target_ratio: tuple[float, float] = (0.85 / 0.95, 1.0),
        cyclic_times: int = 1,
        step_ratio_up: float = 0.4,
        anneal_strategy: str = 'cos',
        gamma: float = 1.0,
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

    def get_momentum(self, runner: RunnerView, base_momentum: float) -> float:
        """There and back again in every cycle."""
        return schedules.cyclic(
            base_momentum,
            runner.iter,
            self.total(runner),
            self.cyclic_times,
            self.step_ratio_up,
            self.target_ratio,
            self.gamma,
            self.anneal_func,
        )


@HOOKS.register_module()
class OneCycleMomentumUpdaterHook(MomentumUpdaterHook):
    """The mirror of OneCycle for learning rates: low where they are high; by iteration only.

    ============  ===================================================================
    two phases    ``max_momentum``, ``base_momentum``, ``max_momentum``
    three phases  the same, and ``max_momentum`` from there on
    ============  ===================================================================

    Args:
        base_momentum: The lower value: a number, a list with one per parameter group, or a dict of either by optimizer.
        max_momentum: The higher value, likewise.
        pct_start: Share of the run that goes down, in [0, 1].
        anneal_strategy: 'cos' or 'linear', the way down and up.
        three_phase: Whether going up again takes as long as going down, or all the rest of the run.
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
        kwargs.setdefault('by_epoch', False)
        check_by_iteration(self, kwargs['by_epoch'])
        check_per_group('base_momentum', base_momentum)
        check_per_group('max_momentum', max_momentum)
        check_share('pct_start', pct_start)
        self._base_momentum = base_momentum
        self._max_momentum = max_momentum
        self.pct_start = pct_start
        self.anneal_func = find_annealing(anneal_strategy)
        self.three_phase = three_phase
        super().__init__(**kwargs)

    def before_run(self, runner: RunnerView) -> None:
        """Look up every group's two values; `get_momentum` gets them, as a dict, in place of an initial momentum."""
        super().before_run(runner)
        self.base_momentum = per_optimizer(runner.optimizer, self._limits)

    def _limits(self, name: str, optimizer: Optimizer) -> list[dict[str, float]]:
        lows = format_param(name, optimizer, self._base_momentum)
        highs = format_param(name, optimizer, self._max_momentum)
        return [{'base_momentum': low, 'max_momentum': high} for low, high in zip(lows, highs, strict=True)]

    def get_momentum(self, runner: RunnerView, param_group: dict[str, float]) -> float:
        """Once down and up over the whole run."""
        low, high = param_group['base_momentum'], param_group['max_momentum']
        corners = (high, low, high, high) if self.three_phase else (high, low, high)
        return schedules.one_cycle(corners, runner.iter, self.total(runner), self.pct_start, self.anneal_func)
