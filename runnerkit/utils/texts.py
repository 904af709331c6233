"""Numbers, times and sizes as short texts, and which names are those of losses."""

from __future__ import annotations

import math
import re
import time
from functools import cache
from typing import Any


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
