"""Hook priorities: 0 runs first, 100 last."""

from __future__ import annotations

from enum import Enum


class Priority(Enum):
    """Named priorities. The comment of each one says which hooks have it.

    Any integer in ``[0, 100]`` is also a priority. Hooks of equal priority are called in the order of registration.
    """

    HIGHEST = 0  # none of ours: for a hook that must come first
    VERY_HIGH = 10  # learning rate: set before the iteration uses it
    HIGH = 30  # momentum
    ABOVE_NORMAL = 40  # the optimizer's update
    NORMAL = 50  # checkpoints, and custom hooks without a priority
    BELOW_NORMAL = 60
    LOW = 70  # timer, evaluation: they look at a finished iteration
    VERY_LOW = 90  # loggers: they write what the other hooks have collected
    LOWEST = 100


def get_priority(priority: int | str | Priority) -> int:
    """Turn a priority's name, number or enum member into its number.

    Raises:
        ValueError: a number outside ``[0, 100]``.
        KeyError: an unknown name.
        TypeError: neither a number, nor a name, nor a `Priority`.
    """
    if isinstance(priority, Priority):
        return priority.value
    if isinstance(priority, int) and not isinstance(priority, bool):
        if not 0 <= priority <= 100:
            raise ValueError(f'priority must be between 0 (first) and 100 (last), but got {priority}')
        return priority
    if isinstance(priority, str):
        try:
            return Priority[priority.upper()].value
        except KeyError:
            names = ', '.join(f'{band.name} ({band.value})' for band in Priority)
            raise KeyError(f'there is no priority named {priority!r}; the names are {names}') from None
    raise TypeError(
        f'priority must be an integer, a name or a Priority, but got {priority!r} ({type(priority).__name__})'
    )
