"""Numbers: checking them, also inside containers, reading them from tensors, and showing them in short."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from numbers import Real
from typing import Any

from runnerkit.utils.exceptions import WrongType, WrongValue

#: Parts of the names of scores for which greater is better, and of those for which less is.
GREATER_KEYS = ('acc', 'top', 'AR@', 'auc', 'precision', 'mAP', 'mDice', 'mIoU', 'mAcc', 'aAcc')
LESS_KEYS = ('loss',)


def values_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value in nested mappings, lists and tuples, after ``path`` with its keys and indices.

    An empty container also is a value. Arrays, tensors and sets are not looked into.
    """
    if not isinstance(value, Mapping | list | tuple) or not value:
        yield path, value
        return
    for key, each in value.items() if isinstance(value, Mapping) else enumerate(value):
        yield from values_in(each, (*path, key))


def check_whole_number(name: str, value: Any, at_least: int = 1, or_none: bool = False, hint: str = '') -> None:
    """Refuse an argument that is not a whole number, or too small."""
    if or_none and value is None:
        return
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if is_integer and value >= at_least:
        return
    needed = f'a whole number of at least {at_least}' + (', or None' if or_none else '')
    message = f'{name} must be {needed}, but got {value!r}' + (f'; {hint}' if hint else '')
    raise (WrongValue if is_integer else WrongType)(message)


def non_finite_numbers(value: Any) -> Iterator[tuple[tuple[Any, ...], float]]:
    """The NaN and infinite numbers in nested dicts, lists and tuples, each with its keys and indices.

    Arrays and tensors are not looked into.
    """
    for where, number in values_in(value):
        if isinstance(number, Real) and not isinstance(number, int) and not math.isfinite(number):
            yield where, float(number)


def check_finite(
    owner: str, values: Any, may_be_infinite: Callable[[tuple[Any, ...]], bool] = lambda path: False
) -> None:
    """Refuse settings in which a number is NaN or infinite."""
    for path, number in non_finite_numbers(values):
        if math.isnan(number) or not may_be_infinite(path):
            name = '.'.join(map(str, path)).lstrip('_')
            raise WrongValue(f'{owner}: {name} must be a finite number, but got {number!r}')


def plain_number(value: Any) -> Any:
    """The number in a numpy scalar, or in a tensor or array of one element; other values are returned unchanged."""
    return value.item() if hasattr(value, 'item') and math.prod(getattr(value, 'shape', (0,))) == 1 else value


def in_short(value: Any) -> str:
    """A number with four digits; anything else as it is."""
    if value is None:
        return '-'
    if isinstance(value, float) and math.isfinite(value):
        return f'{value:.4g}'
    return str(value)


def in_seconds(seconds: float | None) -> str:
    """A duration, such as ``8.2 s``, ``3 min 20 s`` or ``2 h 05 min``."""
    if seconds is None or not math.isfinite(seconds):
        return '-'
    if seconds < 60:
        return f'{seconds:.2g} s' if seconds < 9.95 else f'{seconds:.0f} s'
    minutes, rest = divmod(round(seconds), 60)
    hours, left = divmod(minutes, 60)
    return f'{minutes} min {rest:02} s' if not hours else f'{hours} h {left:02} min'


def in_bytes(count: float) -> str:
    """A size, such as ``663 KiB``."""
    for unit in ('B', 'KiB', 'MiB', 'GiB'):
        if count < 1024:
            return f'{count:.3g} {unit}' if unit != 'B' else f'{count:.0f} B'
        count /= 1024
    return f'{count:.3g} TiB'


def moment(when: Any) -> str:
    """A moment in local time, ``2026-11-24 03:01``; empty if it is none."""
    if not isinstance(when, int | float):
        return ''
    try:
        return time.strftime('%Y-%m-%d %H:%M', time.localtime(when))
    except (ValueError, OverflowError, OSError):
        return ''


_LOSS = re.compile(r'(?<![a-z])loss|loss(es)?(?![a-z])')


@cache
def names_a_loss(name: str) -> bool:
    """Whether a word of ``name`` begins or ends with "loss", as in ``loss_cls``, ``val/celoss`` and ``trainLoss``;
    none of ``glossary_accuracy`` does."""
    return 'Loss' in name or _LOSS.search(name.lower()) is not None


def rule_by_name(key: str, greater_keys: Sequence[str] = GREATER_KEYS, less_keys: Sequence[str] = LESS_KEYS) -> str:
    """Return which is better for a score called ``key``; a whole name among the keys comes before a part of it, and the
    beginning or end of a word before its middle: less is better for ``'launch_loss'``, though it has an ``auc``.

    The part before a slash may be the name of a data set, and counts only if the rest says nothing: less is better
    for ``'accidents/loss'``.
    """
    whole = key.lower()
    greater, less = ([part.lower() for part in parts] for parts in (greater_keys, less_keys))
    for name in (whole.rpartition('/')[2], whole):
        for rule, hit in (
            ('greater', name in greater),
            ('less', name in less),
            ('greater', any(_is_word_part(part, name) for part in greater)),
            ('less', any(_is_word_part(part, name) for part in less)),
            ('greater', any(part in name for part in greater)),
            # MMCV would find a loss in "glossiness".
            ('less', any(part in name for part in less if part != 'loss')),
        ):
            if hit:
                return rule
    raise ValueError(
        f"Cannot infer the rule for key {key}, thus a specific rule must be specified: rule='greater' or rule='less'"
    )


def _is_word_part(part: str, name: str) -> bool:
    """Whether a word of ``name`` begins or ends with ``part``."""
    part = re.escape(part)
    return re.search(f'(?<![a-z]){part}|{part}(?![a-z])', name) is not None
