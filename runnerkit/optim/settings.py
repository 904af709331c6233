"""The settings of optimizers: noted when a run starts, saved in checkpoints, compared by the run that resumes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer

from runnerkit.checkpoint.conditions import Settings, changed, differs
from runnerkit.optim.named import named_optimizers
from runnerkit.parallel import named_parameters
from runnerkit.utils.logging import printable
from runnerkit.utils.numbers import plain_number

#: Says how an optimizer computes a step, not which one: this process decides it, whatever was saved.
IMPLEMENTATION = frozenset({'fused', 'foreach', 'capturable', 'differentiable'})

#: What an optimizer must have had from its first step on: (class, or '' for any; setting) and the state that it keeps.
_NEEDS_STATE = {
    ('', 'amsgrad'): 'max_exp_avg_sq',
    ('', 'centered'): 'grad_avg',
    ('RMSprop', 'momentum'): 'momentum_buffer',
}

#: What an optimizer reads at its first step only.
_FIRST_STEP_ONLY = {('Adagrad', 'initial_accumulator_value'), ('Rprop', 'lr')}


#: torch's schedulers that also set momenta.
CYCLES = ('OneCycleLR', 'CyclicLR')

#: Schedules that set learning rates from their own arguments, whatever the optimizer's is.
_WITH_OWN_RATES = (*CYCLES, 'OneCycleLrUpdaterHook')


def _number_in(value: Any) -> int | float:
    """The number of a numpy scalar or a tensor."""
    number = plain_number(value) if isinstance(value, np.generic | Tensor) else None
    if not isinstance(number, int | float):
        raise TypeError
    return number


def plain_settings(values: Iterable[tuple[str, Any]]) -> Settings:
    """Those of ``values`` that are plain: numbers, texts, None, and lists and dicts of them. Tuples become lists."""
    found = {}
    for name, value in values:
        with suppress(TypeError, ValueError):  # of what JSON does not have, such as a function
            found[name] = json.loads(json.dumps(value, default=_number_in))
    return found


def group_settings(optimizer: Optimizer, model: nn.Module) -> list[Settings]:
    """The settings of each parameter group, with the names of its parameters in ``model`` as ``parameters``."""
    names = {id(parameter): name for name, parameter in named_parameters(model).items()}
    return [
        {
            **plain_settings((key, value) for key, value in group.items() if key not in ('params', 'param_names')),
            'parameters': [names.get(id(parameter), '') for parameter in group['params']],
        }
        for group in optimizer.param_groups
    ]


def sets_own_rates(name: str, found: Mapping[str, Any]) -> bool:
    """Whether one of these schedules (see `schedules`) sets the learning rate of the optimizer ``name`` from its own
    arguments."""
    return any(kind in _WITH_OWN_RATES and optimizer in (None, name) for kind, optimizer in found['lr'])


# --- optimizers ------------------------------------------------------------------------------------------------------


def rescheduled(name: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """The quantities of the optimizer ``name`` that another kind of schedule sets than before, or none, with both kinds
    (see `schedules`)."""

    def of(found: Mapping[str, Any], quantity: str) -> str:
        kinds = [kind for kind, optimizer in found[quantity] if optimizer in (None, name)]
        return ', '.join(kinds) or 'none'

    return {key: (of(was, key), of(now, key)) for key in now if key in was and of(was, key) != of(now, key)}


def settled_group(
    saved: Mapping[str, Any], was: Settings, now: Settings, current: Mapping[str, Any], restarted: Iterable[str] = ()
) -> dict[str, Any]:
    """A parameter group to go on with: the checkpoint's, with the settings that are others than when it was saved.

    A changed learning rate rescales the rate and what its schedule starts from, so that factors of both stay: those of
    a plateau and of ``auto_scale_lr``.
    """
    group = {key: value for key, value in current.items() if key != 'params' and key not in was} | dict(saved)
    group |= {key: current[key] for key in IMPLEMENTATION if key in current}
    others = {name for name in changed(was, now) if name not in ('lr', 'parameters', *IMPLEMENTATION)}
    if 'momentum' in restarted:
        others |= {'momentum', 'betas'} & set(now)
    for name in others:
        group[name] = _like(saved.get(name), was.get(name), now[name], wholly='momentum' in restarted)
    first = 'momentum' if 'momentum' in others else 'betas'
    if first in others and 'initial_momentum' in group:
        group['initial_momentum'] = now[first] if first == 'momentum' else now[first][0]
    if 'lr' in now and ('lr' in restarted or differs(was.get('lr'), now['lr'])):
        before = None if 'lr' in restarted else was.get('lr')
        for name in {'lr', 'initial_lr'} & set(group):
            is_scaled = before and differs(float(group[name]), before)
            group[name] = _like(group[name], None, group[name] * (now['lr'] / before) if is_scaled else now['lr'])
    return group


def _like(saved: Any, was: Any, now: Any, wholly: bool = True) -> Any:
    """``now`` in the type of ``saved``; of a sequence only the items that have changed, unless ``wholly``."""
    if isinstance(now, list):
        same = not wholly and isinstance(was, list) and len(was) == len(now) == len(saved)
        items = (
            old if same and not differs(before, new) else new
            for old, before, new in zip(saved if same else now, was if same else now, now, strict=True)
        )
        return list(items) if isinstance(saved, list) else tuple(items)
    return now * saved.new_ones(()) if isinstance(saved, Tensor) and not isinstance(now, Tensor) else now


def why_not_settled(optimizer: Optimizer, state: Mapping[str, Any], was: Settings, now: Settings) -> str | None:
    """Why a setting of one parameter group cannot change with the optimizer's ``state``; None if all can."""
    kinds = {'', *(kind.__name__ for kind in type(optimizer).__mro__)}
    kept = {key for each in state['state'].values() if isinstance(each, Mapping) for key in each}
    for name in changed(was, now) if state['state'] else ():
        needed = [value for (kind, key), value in _NEEDS_STATE.items() if kind in kinds and key == name]
        lacks_state = bool(needed) and not was[name] and needed[0] not in kept
        if lacks_state or any((kind, name) in _FIRST_STEP_ONLY for kind in kinds):
            return (
                f'{name} changed from {was[name]} to {now[name]}, which {type(optimizer).__name__} cannot change '
                'during a run'
            )
    return None


def why_other_parameters(was: Mapping[str, list[Settings]], now: Mapping[str, list[Settings]]) -> str | None:
    """Why the states of optimizers cannot be matched: the same parameters, in other groups or another order."""
    before, after = ({key: [each['parameters'] for each in groups] for key, groups in of.items()} for of in (was, now))
    if before == after or sorted(_names_in(before)) != sorted(_names_in(after)):
        return None
    counts = [sum(map(len, of.values())) for of in (before, after)]
    if counts[0] != counts[1]:
        return f'its parameters are in {counts[1]} groups, but were in {counts[0]}'
    return 'its parameters are in other groups, or in another order'


def _names_in(groups: Mapping[str, list[list[str]]]) -> list[str]:
    return [name for each in groups.values() for group in each for name in group]


def with_rates_of(groups: list[Settings], factor: float) -> list[Settings]:
    """``groups`` with their learning rates times ``factor``."""
    return [{**group, 'lr': group['lr'] * factor} if 'lr' in group else group for group in groups]


def check_values(state: Mapping[str, Any]) -> None:
    """Refuse the state of an optimizer, from a file, whose values no step can use."""
    parts, groups = state.get('state'), state.get('param_groups')
    if not isinstance(parts, Mapping) or not all(isinstance(each, Mapping) for each in parts.values()):
        raise ValueError("its 'state' holds no dict for each parameter")
    if not isinstance(groups, list) or not all(isinstance(each, Mapping) for each in groups):
        raise ValueError("its 'param_groups' are no list of dicts")
    parameters = [each for group in groups for each in group.get('params', ())]
    if len({*parameters}) < len(parameters):
        raise ValueError("its 'param_groups' name a parameter twice")
    tensors = {key for part in parts.values() for key, value in part.items() if isinstance(value, Tensor)}
    for part in parts.values():
        for key, value in part.items():
            if key in tensors and not isinstance(value, Tensor | None):
                raise ValueError(f'its {key} of one parameter is a {type(value).__name__}, and a tensor of others')


def _has_numeric_type(value: Any) -> bool:
    return isinstance(value, float | Tensor) or (isinstance(value, int) and abs(value) < 2**63)


def check_same_kind(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Whether ``state`` is of an optimizer with the same hyper-parameters."""
    needed = {key for group in optimizer.param_groups for key in group if key in _ESSENTIAL}
    check_values(state)
    given = [item for group in optimizer.param_groups for item in group.items()]
    numbers = {key for key, value in given if _has_numeric_type(value) and not isinstance(value, bool)}
    flags = {key for key, value in given if isinstance(value, bool)}
    for group in state['param_groups']:
        wrong = [key for key in group if key in {*numbers, 'initial_lr'} and not _has_numeric_type(group[key])]
        if wrong:
            raise ValueError(f'its {wrong[0]} is {printable(group[wrong[0]], 60)}, which is not a number')
        wrong = [key for key in group if key in flags and not isinstance(group[key], bool | None)]
        if wrong:
            raise ValueError(f'its {wrong[0]} is {printable(group[wrong[0]], 60)}, which is neither True nor False')
        missing = sorted(needed - set(group))
        if missing:
            raise ValueError(
                f'it has no {", ".join(missing)}, which {type(optimizer).__name__} needs: it is of another kind'
            )


#: Behind the class of an optimizer in `optimizer_kinds`.
FUSED = ' (fused)'

#: Hyper-parameters that tell kinds of optimizers apart.
_ESSENTIAL = ('momentum', 'nesterov', 'betas', 'rho', 'alpha', 'lambd', 'etas', 'max_iter', 'lr_decay', 'ns_steps')


def optimizer_kinds(optimizer: Any) -> dict[str, str]:
    """Class and implementation of each optimizer (fused ones differ in the last bits), for the record."""
    return {
        name: type(each).__name__ + (FUSED if any(group.get('fused') for group in each.param_groups) else '')
        for name, each in named_optimizers(optimizer).items()
    }
