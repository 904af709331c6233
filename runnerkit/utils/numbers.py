"""Checking whole numbers, and reading the number from a tensor."""

from __future__ import annotations

import math
from typing import Any

from runnerkit.utils.exceptions import WrongType, WrongValue


def check_whole_number(name: str, value: Any, at_least: int = 1, or_none: bool = False, hint: str = '') -> None:
    """Refuse an argument that is not a whole number, or too small.

    Args:
        name: the argument's name.
        value: its value.
        at_least: the smallest allowed number.
        or_none: whether None is also allowed.
        hint: appended to the message, such as a way out.

    Raises:
        TypeError: it is not an integer; True and False are not allowed.
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
    """The number in a numpy scalar, or in a tensor or array of one element; other values are returned unchanged."""
    return value.item() if hasattr(value, 'item') and math.prod(getattr(value, 'shape', (0,))) == 1 else value
