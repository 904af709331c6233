"""Schedules: pure functions from progress to a value, whatever the value is the learning rate or the momentum of.

``progress`` counts epochs or iterations from 0, ``total`` is how many there are, ``base`` is the value that the
schedule modulates, and ``target`` where it ends. Nothing here knows an optimizer or a runner.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

Annealing = Callable[[float, float, float], float]


def annealing_cos(start: float, end: float, factor: float, weight: float = 1.0) -> float:
    """Half a cosine wave from ``start`` (factor 0) to ``end`` (factor 1).

    Args:
        start: Value at the beginning; for a weight other than 1 it begins at ``end + weight * (start - end)``.
        end: Value at the end.
        factor: Progress in [0, 1].
        weight: How much of the way between ``end`` and ``start`` the wave covers.
    """
    wave = math.cos(math.pi * factor) + 1
    return end + 0.5 * weight * (start - end) * wave


def annealing_linear(start: float, end: float, factor: float) -> float:
    """A straight line from ``start`` (factor 0) to ``end`` (factor 1)."""
    return start + (end - start) * factor


#: The ways from one value to another that cyclic and one-cycle policies offer.
ANNEALINGS: dict[str, Annealing] = {'cos': annealing_cos, 'linear': annealing_linear}

#: The ways of warming up.
WARMUPS = ('constant', 'linear', 'exp')


def warmup_factor(kind: str, progress: int, total: int, ratio: float) -> float:
    """The factor, from ``ratio`` up to 1, by which a warm-up scales the regular value.

    ========  ==========================================
    constant  ``ratio``
    linear    ``1 - (1 - progress / total) * (1 - ratio)``
    exp       ``ratio ** (1 - progress / total)``
    ========  ==========================================
    """
    if kind == 'constant':
        return ratio
    if kind == 'linear':
        return 1 - (1 - progress / total) * (1 - ratio)
    return ratio ** (1 - progress / total)


def step(base: float, progress: int, steps: int | Sequence[int], gamma: float, minimum: float | None = None) -> float:
    """``base * gamma ** n`` after ``n`` steps, but not less than ``minimum``.

    Args:
        base: Value before the first step.
        progress: Epochs or iterations done.
        steps: The length of every step, or the rising list of the points at which a step is taken.
        gamma: Factor of each step.
        minimum: Where to stop falling; None for no limit.
    """
    count = progress // steps if isinstance(steps, int) else bisect_right(steps, progress)
    value = base * gamma**count
    return value if minimum is None else max(value, minimum)


def exponential(base: float, progress: int, gamma: float) -> float:
    """``base * gamma ** progress``."""
    return base * gamma**progress


def poly(base: float, progress: int, total: int, power: float, minimum: float) -> float:
    """From ``base`` to ``minimum`` as ``(1 - progress / total) ** power``."""
    coefficient = (1 - progress / total) ** power
    return (base - minimum) * coefficient + minimum


def inverse(base: float, progress: int, gamma: float, power: float) -> float:
    """``base * (1 + gamma * progress) ** -power``."""
    return base * (1 + gamma * progress) ** (-power)


def target(base: float, minimum: float | None, ratio: float | None) -> float:
    """Where a schedule ends: at ``minimum``, or where there is a ``ratio``, at that multiple of ``base``."""
    return base * ratio if ratio is not None else minimum  # type: ignore[return-value]


def flat_cosine(base: float, target: float, progress: int, total: int, start_percent: float) -> float:
    """``base`` for the first ``start_percent`` (in [0, 1)) of ``total``, then half a cosine wave to ``target``."""
    start = round(total * start_percent)
    if progress < start:
        return base
    return annealing_cos(base, target, (progress - start) / (total - start))


def get_position_from_periods(iteration: int, cumulative_periods: Sequence[int]) -> int:
    """The index of the period in which ``iteration`` lies.

    Args:
        iteration: Epoch or iteration, from 0.
        cumulative_periods: Where each period ends, in rising order.

    Raises:
        ValueError: If the last period has ended.
    """
    index = bisect_right(cumulative_periods, iteration)
    if index == len(cumulative_periods):
        raise ValueError(
            f'{iteration} lies behind the last period, which ends at {cumulative_periods[-1]}: '
            'let the periods add up to the length of the run'
        )
    return index


def cosine_restart(
    base: float, target: float, progress: int, periods: Sequence[int], weights: Sequence[float]
) -> float:
    """Half a cosine wave to ``target`` per period, each from its own weight's share of the way up to ``base``.

    Source: Loshchilov and Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, 2017.
    """
    ends = list(accumulate(periods))
    index = get_position_from_periods(progress, ends)
    start = ends[index - 1] if index else 0
    alpha = min((progress - start) / periods[index], 1)
    return annealing_cos(base, target, alpha, weights[index])


def cyclic(
    base: float,
    progress: int,
    total: int,
    times: int,
    share_up: float,
    ratios: tuple[float, float],
    gamma: float,
    anneal: Annealing,
) -> float:
    """Up and down again, in equal cycles whose peaks shrink towards ``base``.

    Source: Smith, Cyclical Learning Rates for Training Neural Networks, 2017.

    Args:
        base: Value at which every cycle begins.
        progress: Iterations done.
        total: Iterations of the run.
        times: Number of cycles.
        share_up: Share of a cycle that goes up, in [0, 1).
        ratios: Peak and end of a cycle, in multiples of ``base``.
        gamma: What is left of a peak's height over ``base`` in the next cycle, in (0, 1].
        anneal: The way from one value to the next.

    Raises:
        ValueError: If there are more cycles than iterations.
    """
    if times > total:
        raise ValueError(f'{times} cycles do not fit into {total} iterations; let cyclic_times be {total} at most')
    length = total // times
    up = int(share_up * length)
    cycle, position = divmod(progress, length)
    scale = gamma**cycle
    peak = base * (1 - scale + ratios[0] * scale)
    if position < up:
        return anneal(base, peak, position / up)
    return anneal(peak, base * ratios[1], (position - up) / (length - up))


def one_cycle(corners: Sequence[float], progress: int, total: int, pct_start: float, anneal: Annealing) -> float:
    """Once up and down again over the whole run, in two phases or in three; the last value is kept.

    Source: Smith and Topin, Super-Convergence: Very Fast Training of Neural Networks Using Large Learning Rates, 2018.

    Args:
        corners: Three values for start, peak and end; or four for start, peak, start again and end.
        progress: Iterations done.
        total: Iterations of the cycle.
        pct_start: Share of it that leads to the peak, in [0, 1]; in three phases the way back takes as long.
        anneal: The way from one value to the next.
    """
    ends = [pct_start * total - 1, total - 1]
    if len(corners) == 4:
        ends.insert(1, 2 * pct_start * total - 2)
    start: float = 0
    for (left, right), end in zip(pairwise(corners), ends, strict=True):
        if start < end and progress <= end:
            return anneal(left, right, (progress - start) / (end - start))
        start = end
    return corners[-1]
