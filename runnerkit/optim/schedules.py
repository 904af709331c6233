"""Schedules: a value (learning rate, momentum, weight decay) as a function of a run's progress.

A `Policy` checks and holds a schedule's parameters. Its formula is a pure function of

- ``base``, the initial value of a parameter group,
- ``progress``, the number of completed epochs or iterations, and
- ``total``, the number of epochs or iterations of the whole run.

This module does not use optimizers or runners.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from runnerkit.utils.exceptions import WrongValue

Annealing = Callable[[float, float, float], float]


def annealing_cos(start: float, end: float, factor: float, weight: float = 1.0) -> float:
    """Half a cosine wave from ``start`` (factor 0) to ``end`` (factor 1).

    Args:
        start: Value at the beginning; with a weight other than 1, the wave begins at ``end + weight * (start - end)``.
        end: Value at the end.
        factor: Progress in [0, 1].
        weight: How much of the way between ``end`` and ``start`` the wave covers.
    """
    wave = math.cos(math.pi * factor) + 1
    return end + 0.5 * weight * (start - end) * wave


def annealing_linear(start: float, end: float, factor: float) -> float:
    """A straight line from ``start`` (factor 0) to ``end`` (factor 1)."""
    return start + (end - start) * factor


#: The kinds of annealing of `Cyclic` and `OneCycle`.
ANNEALINGS: dict[str, Annealing] = {'cos': annealing_cos, 'linear': annealing_linear}

#: The kinds of warm-up.
WARMUPS = ('constant', 'linear', 'exp')


def warmup_factor(kind: str | None, progress: int, total: int, ratio: float) -> float:
    """Return the factor, from ``ratio`` up to 1, that a warm-up multiplies the regular value by.

    ========  ==========================================
    constant  ``ratio``
    linear    ``1 - (1 - progress / total) * (1 - ratio)``
    exp       ``ratio ** (1 - progress / total)``
    None      1
    ========  ==========================================

    Source for linear: Goyal et al., Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, 2017.
    """
    if kind == 'constant':
        return ratio
    if kind == 'linear':
        return 1 - (1 - progress / total) * (1 - ratio)
    return ratio ** (1 - progress / total) if kind == 'exp' else 1.0


def get_position_from_periods(iteration: int, cumulative_periods: Sequence[int]) -> int:
    """Return the index of the period that contains ``iteration``.

    Args:
        iteration: Epoch or iteration, from 0.
        cumulative_periods: The end of each period, in ascending order.

    Raises:
        ValueError: If the last period has ended.
    """
    index = bisect_right(cumulative_periods, iteration)
    if index == len(cumulative_periods):
        raise ValueError(
            f'{iteration} is after the last period, which ends at {cumulative_periods[-1]}: the periods must add up to '
            'the length of the run'
        )
    return index


class Policy:
    """A schedule: its parameters and its formula."""

    #: Whether the formula uses ``total``.
    needs_total = True
    #: Whether the schedule counts iterations only.
    by_iteration_only = False
    #: What errors call the argument ``minimum``.
    minimum_name = 'minimum'

    def value(self, base: Any, progress: int, total: int) -> float:
        """Return the value, after ``progress`` of ``total`` epochs or iterations, of a group that began at ``base``."""
        raise NotImplementedError(
            f'{type(self).__name__} has no formula: override value; in a hook, override get_lr or get_momentum'
        )


class Step(Policy):
    """``max(base * gamma ** n, minimum)`` after n steps.

    Args:
        step: The length of every step, or an ascending list of the epochs or iterations of the steps.
        gamma: Factor of each step.
        minimum: Lower limit; None for none.
    """

    needs_total = False

    def __init__(self, step: int | list[int], gamma: float, minimum: float | None = None) -> None:
        check_steps(step)
        self.step, self.gamma, self.minimum = step, gamma, minimum

    def value(self, base: float, progress: int, total: int) -> float:
        steps = progress // self.step if isinstance(self.step, int) else bisect_right(self.step, progress)
        value = base * self.gamma**steps
        return value if self.minimum is None else max(value, self.minimum)


class Exp(Policy):
    """``base * gamma ** progress``.

    Args:
        gamma: Factor of every epoch or iteration.
    """

    needs_total = False

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma

    def value(self, base: float, progress: int, total: int) -> float:
        return base * self.gamma**progress


class Poly(Policy):
    """``(base - minimum) * (1 - progress / total) ** power + minimum``.

    Source: Chen et al., DeepLab, 2016.

    Args:
        power: 1 for a straight line; with a larger power the value falls earlier.
        minimum: Value at the end.
    """

    def __init__(self, power: float = 1.0, minimum: float = 0.0) -> None:
        self.power, self.minimum = power, minimum

    def value(self, base: float, progress: int, total: int) -> float:
        return (base - self.minimum) * (1 - progress / total) ** self.power + self.minimum


class Inv(Policy):
    """``base * (1 + gamma * progress) ** -power``; from Caffe.

    Args:
        gamma: How fast it falls, at least 0.
        power: Exponent.
    """

    needs_total = False

    def __init__(self, gamma: float, power: float = 1.0) -> None:
        self.gamma, self.power = gamma, power

    def value(self, base: float, progress: int, total: int) -> float:
        return base * (1 + self.gamma * progress) ** (-self.power)


class Annealed(Policy):
    """A policy that ends at ``minimum``, or at ``minimum_ratio * base``; exactly one is given.

    Args:
        minimum: the value at the end; give this or ``minimum_ratio``.
        minimum_ratio: the end as a share of the initial value.

    Raises:
        WrongValue: both are given, or neither.
    """

    def __init__(self, minimum: float | None = None, minimum_ratio: float | None = None) -> None:
        if (minimum is None) == (minimum_ratio is None):
            name = self.minimum_name
            raise WrongValue(
                f'exactly one of {name} and {name}_ratio says where the schedule ends, '
                f'got {name}={minimum} and {name}_ratio={minimum_ratio}'
            )
        self.minimum, self.minimum_ratio = minimum, minimum_ratio

    def end(self, base: float) -> float:
        """The value at the end for a group that started with ``base``."""
        return self.minimum if self.minimum_ratio is None else base * self.minimum_ratio  # type: ignore[return-value]


class LinearAnnealing(Annealed):
    """``base + (end - base) * progress / total``."""

    def value(self, base: float, progress: int, total: int) -> float:
        return annealing_linear(base, self.end(base), progress / total)


class CosineAnnealing(Annealed):
    """``end + (base - end) * (1 + cos(pi * progress / total)) / 2``.

    Source: Loshchilov and Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, 2017.
    """

    def value(self, base: float, progress: int, total: int) -> float:
        return annealing_cos(base, self.end(base), progress / total)


class FlatCosineAnnealing(Annealed):
    """``base`` for the first part of the run, then `CosineAnnealing` over the rest of it.

    Args:
        start_percent: Start of the annealing, as a share of the run in [0, 1).
    """

    def __init__(
        self, start_percent: float = 0.75, minimum: float | None = None, minimum_ratio: float | None = None
    ) -> None:
        super().__init__(minimum, minimum_ratio)
        self.start_percent = check_share('start_percent', start_percent)

    def value(self, base: float, progress: int, total: int) -> float:
        start = round(total * self.start_percent)
        if progress < start:
            return base
        return annealing_cos(base, self.end(base), (progress - start) / (total - start))


class CosineRestart(Annealed):
    """`CosineAnnealing` repeated in every period, starting at ``end + weight * (base - end)``.

    Source: Loshchilov and Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, 2017.

    Args:
        periods: Lengths of the periods in epochs or iterations; together at least the run's length.
        restart_weights: One weight per period, which sets its start.
    """

    needs_total = False

    def __init__(
        self,
        periods: list[int],
        restart_weights: list[float],
        minimum: float | None = None,
        minimum_ratio: float | None = None,
    ) -> None:
        super().__init__(minimum, minimum_ratio)
        if len(periods) != len(restart_weights):
            raise WrongValue(
                f'every period needs one weight, but there are {len(periods)} periods, {list(periods)}, '
                f'and {len(restart_weights)} restart_weights, {list(restart_weights)}'
            )
        self.periods = [check_positive('periods', period) for period in periods]
        self.restart_weights = restart_weights
        self.cumulative_periods = list(accumulate(periods))

    def value(self, base: float, progress: int, total: int) -> float:
        index = get_position_from_periods(progress, self.cumulative_periods)
        start = self.cumulative_periods[index - 1] if index else 0
        share = min((progress - start) / self.periods[index], 1)
        return annealing_cos(base, self.end(base), share, self.restart_weights[index])


class Cyclic(Policy):
    """Cycles of equal length from ``base`` to ``peak * base`` and then to ``end * base``; by iteration only.

    Source: Smith, Cyclical Learning Rates for Training Neural Networks, 2017.

    Args:
        target_ratio: ``(peak, end)``; a single number is the peak, and the end is the peak divided by 100,000.
        cyclic_times: Number of cycles in the run, at least 1.
        step_ratio_up: Share of a cycle up to the peak, in [0, 1).
        anneal_strategy: 'cos' or 'linear', in both directions.
        gamma: Factor of the distance between peak and ``base`` from one cycle to the next, in (0, 1].
    """

    by_iteration_only = True

    def __init__(
        self,
        target_ratio: float | tuple[float, float],
        cyclic_times: int = 1,
        step_ratio_up: float = 0.4,
        anneal_strategy: str = 'cos',
        gamma: float = 1,
    ) -> None:
        if not 0 < gamma <= 1:
            raise WrongValue(f'"gamma" is a share, above 0 and at most 1, got {gamma}')
        self.target_ratio = cycle_ratios(target_ratio)
        self.cyclic_times = check_positive('cyclic_times', cyclic_times)
        self.step_ratio_up = check_share('step_ratio_up', step_ratio_up, closed=False)
        self.anneal_func = find_annealing(anneal_strategy)
        self.gamma = gamma

    def value(self, base: float, progress: int, total: int) -> float:
        if self.cyclic_times > total:
            raise ValueError(
                f'{self.cyclic_times} cycles do not fit into {total} iterations; let cyclic_times be {total} at most'
            )
        length = total // self.cyclic_times
        up = int(self.step_ratio_up * length)
        cycle, position = divmod(progress, length)
        scale = self.gamma**cycle
        peak = base * (1 - scale + self.target_ratio[0] * scale)
        if position < up:
            return self.anneal_func(base, peak, position / up)
        return self.anneal_func(peak, base * self.target_ratio[1], (position - up) / (length - up))


class OneCycle(Policy):
    """One cycle, up to the peak and down again, over the whole run; in two or three phases; by iteration only.

    Its ``base`` is three values: at the start, at the peak, and at the end.

    Source: Smith and Topin, Super-Convergence: Very Fast Training of Neural Networks Using Large Learning Rates, 2018.

    Args:
        pct_start: Share of the run up to the peak, in [0, 1]; with three phases, the way back takes as long.
        anneal_strategy: 'cos' or 'linear', between two values.
        three_phase: Whether to return to the start value before going to the end value.
    """

    by_iteration_only = True

    def __init__(self, pct_start: float = 0.3, anneal_strategy: str = 'cos', three_phase: bool = False) -> None:
        self.pct_start = check_share('pct_start', pct_start)
        self.anneal_func = find_annealing(anneal_strategy)
        self.three_phase = three_phase

    def value(self, base: tuple[float, float, float], progress: int, total: int) -> float:
        start, peak, end = base
        up, whole = self.pct_start * total - 1, total - 1
        phases = [(start, peak, up), (peak, end, whole)]
        if self.three_phase:
            phases[1:] = [(peak, start, 2 * self.pct_start * total - 2), (start, end, whole)]
        first: float = 0
        for left, right, last in phases:
            if first < last and progress <= last:
                return self.anneal_func(left, right, (progress - first) / (last - first))
            first = last
        return end


def check_steps(steps: Any) -> None:
    """Check that ``steps`` is a positive length, or an ascending list of positive integers."""
    if isinstance(steps, bool) or not isinstance(steps, (int, list, tuple)):
        raise TypeError(f'"step" is an integer, or a list of them such as [8, 11], got {steps!r}')
    points = [steps] if isinstance(steps, int) else list(steps)
    if not all(isinstance(point, int) and point > 0 for point in points):
        raise WrongValue(f'"step" must be positive integers (epochs or iterations), but got {steps!r}')
    if points != sorted(points):
        raise WrongValue(f'"step" must be in ascending order, but got {steps!r}; write {sorted(points)}')


def check_positive(name: str, value: Any) -> int:
    """Return ``value`` if it is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise WrongValue(f'{name} must be a positive integer, but got {value!r}')
    return value


def check_share(name: str, value: Any, closed: bool = True) -> float:
    """Return ``value`` if it is a number in [0, 1], or with ``closed=False`` in [0, 1)."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not (0 <= value < 1 or (closed and value == 1)):
        raise WrongValue(f'"{name}" is a share in [0, 1{"]" if closed else ")"}, got {value!r}')
    return value


def cycle_ratios(target_ratio: Any) -> tuple[float, float]:
    """Return peak and end of a cycle; if only the peak is given, the end is the peak divided by 100,000."""
    if isinstance(target_ratio, (int, float)):
        return target_ratio, target_ratio / 1e5
    if not isinstance(target_ratio, (list, tuple)) or len(target_ratio) != 2:
        raise WrongValue(f'target_ratio is a number, or two of them such as (10, 1e-4), got {target_ratio!r}')
    return target_ratio[0], target_ratio[1]


def find_annealing(strategy: str) -> Annealing:
    """Return the annealing function of that name."""
    if strategy not in ANNEALINGS:
        raise ValueError(f'there is no anneal_strategy {strategy!r}; choose one of {", ".join(ANNEALINGS)}')
    return ANNEALINGS[strategy]


def check_warmup(kind: str, iters: int, ratio: float) -> None:
    """Check the kind, length and ratio of a warm-up."""
    if kind not in WARMUPS:
        raise ValueError(f'"{kind}" is not a supported type of warm-up; choose one of {", ".join(WARMUPS)}')
    if iters <= 0:
        raise WrongValue(f'"warmup_iters" must be at least 1, got {iters}; for no warm-up say warmup=None')
    if not 0 < ratio <= 1:
        raise WrongValue(f'"warmup_ratio" is a share of the regular value, above 0 and at most 1, got {ratio}')
