"""Every scheduler of ``torch.optim.lr_scheduler`` by its name, and users' own of that kind."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from runnerkit.registry import Registry, find_function
from runnerkit.utils.exceptions import WrongValue
from runnerkit.utils.signatures import function_arguments

#: Schedulers of users: classes like torch's, which are built with an optimizer and have ``step`` and a state.
LR_SCHEDULERS = Registry('learning-rate scheduler')


def find_scheduler(name: str) -> type[LRScheduler] | None:
    """Return the scheduler class of that name, a registered one or torch's; None if there is none."""
    if name in LR_SCHEDULERS:
        return LR_SCHEDULERS.get(name)
    found = getattr(lr_scheduler, name, None)
    is_scheduler = isinstance(found, type) and issubclass(found, LRScheduler) and found is not LRScheduler
    return found if is_scheduler and not name.startswith('_') else None


def scheduler_names() -> list[str]:
    """Return the names of all schedulers: torch's, and the registered ones."""
    return [*(name for name in vars(lr_scheduler) if find_scheduler(name)), *LR_SCHEDULERS.names()]


def with_functions(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the scheduler ``name`` with functions in the place of their names, also in ``schedulers``.

    Raises:
        KeyError: a name is not known; or see `find_function`.
    """
    found, scheduler = dict(arguments), find_scheduler(name)
    for key in function_arguments(scheduler) if scheduler else ():
        if key in found:
            found[key] = find_function(found[key], key, arguments)
    if 'schedulers' in found:
        found['schedulers'] = [
            dict(with_functions(policy, own), policy=policy) for policy, own in _parts(found['schedulers'])
        ]
    return found


def takes_epoch(scheduler: Any) -> bool:
    """Whether a scheduler defines ``step(epoch)`` itself, as Vega's users write it; torch's is deprecated."""
    step = type(scheduler).step
    is_own = not getattr(step, '__module__', '').startswith('torch.')
    return is_own and 'epoch' in inspect.signature(step).parameters


def build_scheduler(name: str, optimizer: Optimizer, **arguments: Any) -> LRScheduler:
    """Build the scheduler of that name for ``optimizer``.

    Args:
        name: Name of a class in ``torch.optim.lr_scheduler``.
        optimizer: The optimizer to schedule.
        **arguments: The class's own arguments. For schedulers that combine others, ``schedulers`` is a list of dicts
            with a ``policy`` and its arguments. A single ``max_lr`` or ``base_lr`` is that of a group whose learning
            rate is the optimizer's; those of other groups are in the same ratio.

    Raises:
        KeyError: If torch has no scheduler of that name.
        ValueError: If a list does not have one value per parameter group.
    """
    return _build(name, optimizer, multipliers(optimizer), arguments)


def _build(name: str, optimizer: Optimizer, factors: Sequence[float], arguments: Mapping[str, Any]) -> LRScheduler:
    scheduler = find_scheduler(name)
    if scheduler is None:
        raise KeyError(f'torch.optim.lr_scheduler has no {name!r}, only {", ".join(scheduler_names())}')
    build: Any = scheduler
    if 'schedulers' in arguments:
        parts = [_build(policy, optimizer, factors, own) for policy, own in _parts(arguments['schedulers'])]
        return build(**{**arguments, 'optimizer': optimizer, 'schedulers': parts})
    check_lengths(optimizer, arguments)
    for key in ('step_size', 'T_max'):  # torch divides by them, not before its second step
        if isinstance(value := arguments.get(key), (int, float)) and value <= 0:
            raise WrongValue(f'{name}: {key} must be above 0, got {value!r}')
    return build(optimizer, **{key: _per_group(key, value, factors) for key, value in arguments.items()})


def _parts(configs: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for config in configs:
        if not isinstance(config, dict) or 'policy' not in config:
            raise TypeError(f"schedulers holds dicts such as dict(policy='LinearLR', total_iters=5), got {config!r}")
        arguments = dict(config)
        yield arguments.pop('policy'), arguments


#: Arguments that may be a list with one value per parameter group.
PER_GROUP = ('max_lr', 'base_lr', 'min_lr', 'lr_lambda', 'base_momentum', 'max_momentum')

#: Those among them that replace the groups' learning rates.
_RATES = ('max_lr', 'base_lr')


def multipliers(optimizer: Optimizer) -> list[float]:
    """Return by how much each group's learning rate differs from the optimizer's, as ``paramwise_cfg`` says."""
    rates = [float(group.get('initial_lr', group['lr'])) for group in optimizer.param_groups]
    base = float(optimizer.defaults.get('lr', 0))
    return [rate / base for rate in rates] if base and len(set(rates)) > 1 else [1.0] * len(rates)


def _per_group(key: str, value: Any, factors: Sequence[float]) -> Any:
    """A single learning rate, times each group's multiplier; anything else as it is."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if key not in _RATES or not is_number or all(factor == 1 for factor in factors):
        return value
    return [value * factor for factor in factors]


def check_lengths(optimizer: Optimizer, arguments: Mapping[str, Any]) -> None:
    """Refuse lists that do not have one value per parameter group, also those of ``schedulers``.

    Raises:
        ValueError: there is one; the message names the groups.
    """
    for _, own in _parts(arguments.get('schedulers', ())):
        check_lengths(optimizer, own)
    groups = optimizer.param_groups
    for key in PER_GROUP:
        value = arguments.get(key)
        if isinstance(value, (list, tuple)) and len(value) != len(groups):
            raise ValueError(
                f'{key} has {len(value)} value{"" if len(value) == 1 else "s"}, but the optimizer has {len(groups)} '
                f'parameter group{"" if len(groups) == 1 else "s"}: {describe_groups(optimizer)}'
            )


def describe_groups(optimizer: Optimizer) -> str:
    """Name the parameter groups by index, with their learning rate and size; neighbours that are alike as one."""
    runs: list[list[Any]] = []  # first and last index, rate, parameters
    for index, group in enumerate(optimizer.param_groups):
        rate, size = float(group.get('initial_lr', group['lr'])), len(group['params'])
        if runs and runs[-1][2] == rate:
            runs[-1][1], runs[-1][3] = index, runs[-1][3] + size
        else:
            runs.append([index, index, rate, size])
    texts = [
        f'{first if first == last else f"{first} to {last}"} (lr {rate:g}, {size} parameter{"" if size == 1 else "s"})'
        for first, last, rate, size in runs
    ]
    return ', '.join(texts[:6]) + (' …' if len(texts) > 6 else '')


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
