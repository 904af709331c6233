"""What a number must be, and the number that a tensor holds."""

from __future__ import annotations

import math
from typing import Any

from runnerkit.utils.exceptions import WrongType, WrongValue


def check_whole_number(name: str, value: Any, at_least: int = 1, or_none: bool = False, hint: str = '') -> None:
    """Refuse an argument that is no whole number, or too small.

    Args:
        name: of the argument.
        value: what was given for it.
        at_least: the smallest number allowed.
        or_none: whether None is allowed, too.
        hint: what else the error says, such as a way out.

    Raises:
        TypeError: it is something else than an integer; True and False are something else.
        ValueError: it is smaller than ``at_least``.
    """
    if or_none and value is None:
        return
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if is_integer and value >= at_least:
        return
    needed = f'a whole number of at least {at_least}' + (', or None' if or_none else '')
    message = f'{name} must be {needed}, but got {value!r}' + (f'; {hint}' if hint else '')
    raise (WrongValue if is_integer else WrongType)(message)


def plain_number(value: Any) -> Any:
    """The number in a tensor or array of one element, or in a numpy scalar; anything else as it is."""
    return value.item() if hasattr(value, 'item') and math.prod(getattr(value, 'shape', (0,))) == 1 else value
