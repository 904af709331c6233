"""Every scheduler of ``torch.optim.lr_scheduler`` by its name."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler


def find_scheduler(name: str) -> type[LRScheduler] | None:
    """Return the scheduler class of that name, None if torch has none."""
    found = getattr(lr_scheduler, name, None)
    is_scheduler = isinstance(found, type) and issubclass(found, LRScheduler) and found is not LRScheduler
    return found if is_scheduler and not name.startswith('_') else None


def scheduler_names() -> list[str]:
    """Return the names of all schedulers of torch."""
    return [name for name in vars(lr_scheduler) if find_scheduler(name)]


def build_scheduler(name: str, optimizer: Optimizer, **arguments: Any) -> LRScheduler:
    """Build the scheduler of that name for ``optimizer``.

    Args:
        name: Name of a class in ``torch.optim.lr_scheduler``.
        optimizer: The optimizer to schedule.
        **arguments: The class's own arguments. For schedulers that combine others, ``schedulers`` is a list of dicts
            with a ``policy`` and its arguments.

    Raises:
        KeyError: If torch has no scheduler of that name.
    """
    scheduler = find_scheduler(name)
    if scheduler is None:
        raise KeyError(f'torch.optim.lr_scheduler has no {name!r}, only {", ".join(scheduler_names())}')
    build: Any = scheduler
    if 'schedulers' not in arguments:
        return build(optimizer, **arguments)
    parts = [_build_part(part, optimizer) for part in arguments.pop('schedulers')]
    return build(optimizer=optimizer, schedulers=parts, **arguments)


def _build_part(config: dict[str, Any], optimizer: Optimizer) -> LRScheduler:
    if not isinstance(config, dict) or 'policy' not in config:
        raise TypeError(f"schedulers holds dicts such as dict(policy='LinearLR', total_iters=5), got {config!r}")
    arguments = dict(config)
    return build_scheduler(arguments.pop('policy'), optimizer, **arguments)


def plain_state(scheduler: LRScheduler) -> dict[str, Any]:
    """Return the scheduler's state in plain Python types, which checkpoints need."""
    return _convert(scheduler.state_dict())


def load_plain_state(scheduler: LRScheduler, state: dict[str, Any]) -> None:
    """Restore what `plain_state` returned."""
    scheduler.load_state_dict(_restore(state, scheduler.state_dict()))


def _convert(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _convert(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_convert(item) for item in value)
    return value


def _restore(value: Any, like: Any) -> Any:
    """Return ``value`` with a Counter wherever ``like`` has one; `_convert` made dicts of them."""
    if isinstance(like, Counter):
        return Counter(value)
    if isinstance(value, dict):
        return {key: _restore(item, like.get(key) if isinstance(like, dict) else None) for key, item in value.items()}
    if isinstance(value, list) and isinstance(like, list) and len(value) == len(like):
        return [_restore(item, old) for item, old in zip(value, like, strict=True)]
    return value
