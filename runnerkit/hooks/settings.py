"""The settings of hooks, which checkpoints hold and a resumed run compares."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from runnerkit.checkpoint.conditions import Settings
from runnerkit.hooks.hook import Hook
from runnerkit.hooks.param_schedule import ScheduleHook
from runnerkit.optim.settings import CYCLES, plain_settings

#: Arguments of hooks that are stored in attributes with other names.
_ELSEWHERE = {f'min_{key}{ratio}': f'minimum{ratio}' for key in ('lr', 'momentum') for ratio in ('', '_ratio')}


def hook_settings(hook: Hook) -> Settings:
    """The plain values that ``hook`` was built with, of arguments that have an attribute of the same name; without
    the folder that it writes to."""
    inits = [vars(kind).get('__init__') for kind in type(hook).__mro__]
    names = dict.fromkeys(
        name for init in inits if inspect.isfunction(init) for name in inspect.signature(init).parameters
    )
    attributes = {
        name: next((key for key in (name, f'_{name}', _ELSEWHERE.get(name)) if key in vars(hook)), None)
        for name in names
        if name != 'out_dir'
    }
    return plain_settings((name, vars(hook)[key]) for name, key in attributes.items() if key is not None)


def schedules(hooks: Iterable[Hook]) -> dict[str, list[list[str | None]]]:
    """The schedules of learning rates and momenta: for each quantity, pairs of a schedule's kind and the name of its
    optimizer (None: all)."""
    found: dict[str, list[list[str | None]]] = {'lr': [], 'momentum': []}
    for hook in hooks:
        if isinstance(hook, ScheduleHook):
            for quantity in ('lr', 'momentum') if hook.scheduler in CYCLES else (hook.key,):
                found[quantity].append([hook.scheduler or type(hook).__name__, hook.optimizer])
    return found
