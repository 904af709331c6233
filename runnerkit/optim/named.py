"""Read one optimizer, a dict of them, or none, in the same way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer

Optimizers = Optimizer | dict[str, Optimizer] | None


def named_optimizers(optimizer: Optimizers) -> dict[str, Optimizer]:
    """Return the optimizers by name; a single one has the empty name."""
    if optimizer is None:
        return {}
    return optimizer if isinstance(optimizer, dict) else {'': optimizer}


def has_scheduler(optimizer: Optimizer) -> bool:
    """Whether a scheduler of torch's changes the rates of ``optimizer``."""
    return hasattr(optimizer.step, '_wrapped_by_lr_sched')


def learning_rates(optimizer: Optimizers) -> list[float] | dict[str, list[float]]:
    """The learning rate of every parameter group; by optimizer name if ``optimizer`` is a dict."""
    return _of_each(optimizer, lambda one: [group['lr'] for group in one.param_groups])


def momenta(optimizer: Optimizers) -> list[float] | dict[str, list[float]]:
    """The momentum (or first beta) of every parameter group, 0 where there is none; by name as `learning_rates`."""
    return _of_each(
        optimizer, lambda one: [group.get('momentum', group.get('betas', (0,))[0]) for group in one.param_groups]
    )


def other_rates(optimizer: Optimizers) -> dict[str, float]:
    """The learning rates that differ from the first group's, one for all groups that are alike.

    ``'x0.1'`` is the rate of the groups that began with a tenth of the first group's rate, so a name means the same
    groups all the time. With several optimizers it is ``'<optimizer>_x0.1'``. A group whose rate was changed
    since then, or where the first one began with 0, is called by its index: ``'group3'``. A group's own ``name``
    comes before all that.
    """
    found: dict[str, float] = {}
    for prefix, one in named_optimizers(optimizer).items():
        groups = one.param_groups
        if len(groups) < 2:
            continue
        rates: dict[str, float] = {'': groups[0].get('lr', 0.0)}
        begun = _initial(groups[0])
        for index, group in enumerate(groups[1:], 1):
            rate, ratio = group['lr'], _initial(group) / begun if begun else 1.0
            name = str(group.get('name') or ('' if abs(ratio - 1) < 1e-6 else f'x{ratio:.4g}'))
            if rates.setdefault(name, rate) != rate:
                rates[f'group{index}'] = rate
        del rates['']
        found.update({f'{prefix}_{name}' if prefix else name: rate for name, rate in rates.items()})
    return found


def _initial(group: dict[str, Any]) -> float:
    return float(group.get('initial_lr', group.get('lr', 0.0)))


def _of_each(optimizer: Optimizers, read: Callable[[Optimizer], list[float]]) -> Any:
    if optimizer is None:
        raise RuntimeError('lr and momentum are not available: the runner has no optimizer')
    return {name: read(one) for name, one in optimizer.items()} if isinstance(optimizer, dict) else read(optimizer)
