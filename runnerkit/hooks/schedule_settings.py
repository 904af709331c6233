"""What learning-rate and momentum policies accept: wrong settings are refused when a hook is built, not in mid-run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from runnerkit.hooks.hook import Hook
from runnerkit.optim.schedules import ANNEALINGS, WARMUPS, Annealing
from runnerkit.utils.exceptions import WrongValue

if TYPE_CHECKING:
    from torch.optim import Optimizer


def check_warmup(kind: str, iters: int, ratio: float) -> None:
    """Refuse a warm-up that is none."""
    if kind not in WARMUPS:
        raise ValueError(f'"{kind}" is not a supported type of warm-up; choose one of {", ".join(WARMUPS)}')
    if iters <= 0:
        raise WrongValue(f'"warmup_iters" must be at least 1, got {iters}; for no warm-up say warmup=None')
    if not 0 < ratio <= 1:
        raise WrongValue(f'"warmup_ratio" is a share of the regular value, above 0 and at most 1, got {ratio}')


def check_target(quantity: str, minimum: float | None, ratio: float | None) -> None:
    """Refuse anything but exactly one way to say where a schedule ends."""
    if (minimum is None) == (ratio is None):
        raise WrongValue(
            f'exactly one of min_{quantity} and min_{quantity}_ratio says where the schedule ends, '
            f'got min_{quantity}={minimum} and min_{quantity}_ratio={ratio}'
        )


def check_steps(steps: int | Sequence[int]) -> None:
    """Refuse anything but a positive length, or a rising list of positive points."""
    if isinstance(steps, bool) or not isinstance(steps, (int, list, tuple)):
        raise TypeError(f'"step" is an integer, or a list of them such as [8, 11], got {steps!r}')
    points = [steps] if isinstance(steps, int) else list(steps)
    if not all(isinstance(point, int) and point > 0 for point in points):
        raise WrongValue(f'"step" counts epochs or iterations, in positive integers, got {steps!r}')
    if points != sorted(points):
        raise WrongValue(f'"step" is a list in rising order, got {steps!r}; write {sorted(points)}')


def check_by_iteration(hook: Hook, by_epoch: bool) -> None:
    """Refuse ``by_epoch`` in a policy that knows iterations only."""
    if by_epoch:
        raise WrongValue(
            f'{type(hook).__name__} counts iterations and supports only by_epoch=False; leave by_epoch out'
        )


def check_positive(name: str, value: Any) -> None:
    """Refuse anything but a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise WrongValue(f'{name} counts, in positive integers, got {value!r}')


def check_cycles(times: int, share_up: float, gamma: float) -> None:
    """Refuse settings of a cyclic policy that are out of their ranges."""
    check_positive('cyclic_times', times)
    check_share('step_ratio_up', share_up, closed=False)
    if not 0 < gamma <= 1:
        raise WrongValue(f'"gamma" is a share, above 0 and at most 1, got {gamma}')


def cycle_ratios(target_ratio: float | Sequence[float]) -> tuple[float, float]:
    """Peak and end of a cycle; where only the peak is given, the end is that by 100,000."""
    if isinstance(target_ratio, (int, float)):
        return target_ratio, target_ratio / 1e5
    if not isinstance(target_ratio, (list, tuple)) or len(target_ratio) != 2:
        raise WrongValue(f'target_ratio is a number, or two of them such as (10, 1e-4), got {target_ratio!r}')
    return target_ratio[0], target_ratio[1]


def check_share(name: str, value: float, closed: bool = True) -> None:
    """Refuse a number outside [0, 1], or outside [0, 1) where 1 makes no sense."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not (0 <= value < 1 or (closed and value == 1))
    ):
        raise WrongValue(f'"{name}" is a share in [0, 1{"]" if closed else ")"}, got {value!r}')


def find_annealing(strategy: str) -> Annealing:
    """The annealing function of that name."""
    if strategy not in ANNEALINGS:
        raise ValueError(f'there is no anneal_strategy {strategy!r}; choose one of {", ".join(ANNEALINGS)}')
    return ANNEALINGS[strategy]


def format_param(name: str, optim: Optimizer, param: Any) -> list[Any] | tuple[Any, ...]:
    """One value per parameter group of ``optim`` from what a config may say.

    Args:
        name: Name of the optimizer, by which it is looked up in a dict.
        optim: The optimizer.
        param: A number for all groups, a list with one per group, or a dict of either by optimizer.

    Raises:
        ValueError: If a list has another length than there are groups.
        KeyError: If a dict does not name the optimizer.
    """
    if isinstance(param, dict):
        if name not in param:
            raise KeyError(f'{name} has no value among those for {", ".join(param)}: give one for every optimizer')
        param = param[name]
    if isinstance(param, (int, float)):
        return [param] * len(optim.param_groups)
    if len(param) != len(optim.param_groups):
        raise ValueError(
            f'{name} has {len(optim.param_groups)} parameter groups, but {len(param)} values are given: {param}'
        )
    return param


def check_per_group(name: str, value: Any) -> None:
    """Refuse what `format_param` could make nothing of."""
    if isinstance(value, bool) or not isinstance(value, (int, float, list, tuple, dict)):
        raise ValueError(
            f'{name} is a number, a list with one per parameter group, or a dict by optimizer, got {value!r}'
        )
