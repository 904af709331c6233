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


def learning_rates(optimizer: Optimizers) -> list[float] | dict[str, list[float]]:
    """The learning rate of every parameter group; by optimizer name if ``optimizer`` is a dict.

    Raises:
        RuntimeError: there is no optimizer.
    """
    return _of_groups(optimizer, lambda group: group['lr'])


def momenta(optimizer: Optimizers) -> list[float] | dict[str, list[float]]:
    """The momentum (or first beta) of every parameter group, 0 where there is none; by name as `learning_rates`.

    Raises:
        RuntimeError: there is no optimizer.
    """
    return _of_groups(optimizer, lambda group: group.get('momentum', group.get('betas', (0,))[0]))


def _of_groups(optimizer: Optimizers, read: Callable[[dict[str, Any]], float]) -> Any:
    if optimizer is None:
        raise RuntimeError('lr and momentum are not available: the runner has no optimizer')
    values = {name: [read(group) for group in one.param_groups] for name, one in named_optimizers(optimizer).items()}
    return values if isinstance(optimizer, dict) else values['']
