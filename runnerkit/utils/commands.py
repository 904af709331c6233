"""The commands that control a run from another process; torch is not imported."""

from __future__ import annotations

import math
from typing import Any

from runnerkit.utils.exceptions import WrongValue
from runnerkit.utils.suggest import did_you_mean

#: The commands, and what they do.
COMMANDS = {
    'status': 'show the state of the run',
    'pause': 'wait after the running iteration',
    'resume': 'continue after a pause',
    'save': 'save a checkpoint after the running iteration',
    'stop': 'end the run after the running iteration',
    'lr': 'set the learning rate to VALUE; with "schedule", return to the schedule',
}

#: The value of ``lr`` that ends what a number has set.
SCHEDULE = 'schedule'


def check_command(command: str, value: Any) -> Any:
    """The value of a command, checked; learning rates may be text.

    Raises:
        WrongValue: there is no such command, or its value is missing, wrong or too much.
    """
    if command not in COMMANDS:
        hint = did_you_mean(command, COMMANDS)
        raise WrongValue(f'unknown command {command!r} ({", ".join(COMMANDS)}); {hint}'.rstrip('; '))
    if command != 'lr':
        if value is not None:
            raise WrongValue(f'{command} takes no value, but got {value!r}')
        return None
    if value == SCHEDULE:
        return value
    try:
        lr = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        lr = math.nan
    if not (math.isfinite(lr) and lr >= 0):
        given = 'none' if value is None else repr(value)
        raise WrongValue(f'lr takes a number of at least 0, or {SCHEDULE!r}, but got {given}')
    return lr
