"""How two values of two runs differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from runnerkit.parallel.bits import bit_words
from runnerkit.utils.logging import shortened

#: Up to how many units of the last place a difference is shown in these.
MOST_ULPS = 10_000

#: In place of a value that one side lacks.
MISSING = object()


def difference_of(place: str, then: Any, now: Any, sides: Sequence[str] = ('the checkpoint', 'the replay')) -> str:
    """How two values, of the ``sides``, differ; empty if they do not."""
    if isinstance(then, Tensor) and isinstance(now, Tensor):
        if then.shape != now.shape or then.dtype != now.dtype:
            return f'{place} was {tuple(then.shape)} {then.dtype} and is {tuple(now.shape)} {now.dtype}'
        if torch.equal(bit_words(then), bit_words(now)):
            return ''
        count = int(((then != now) & ((then == then) | (now == now))).sum())
        if count == 0:
            return f'{place} differs in its bits alone: in the sign of a zero, or in those of a NaN'
        return f'{place} differs in {count} of {then.numel()} values, by up to {furthest(then, now)[2]}'
    if then is MISSING or now is MISSING:
        return f'{place} is missing in {sides[now is MISSING]}'
    is_same = type(then) is type(now) and (then == now or (then != then and now != now))
    return '' if is_same else f'{place} was {shortened([then])} and is {shortened([now])}'


def furthest(one: Tensor, other: Tensor) -> tuple[float, float, str]:
    """The two numbers at that place of two tensors where these are furthest apart, and how far: in units of the last
    place of a float of 32 bits (``2 ulp``), or if these are many, or no floats, as a number.
    """
    pair = [torch.view_as_real(each.resolve_conj()) if each.is_complex() else each for each in (one, other)]
    a, b = (each.detach().cpu().double().flatten().numpy() for each in pair)
    with np.errstate(all='ignore'):
        distance = np.where(
            (a == b) | ((a != a) & (b != b)), 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf, posinf=np.inf)
        )
        ulps = np.max(distance / np.spacing(np.maximum(np.abs(a), np.abs(b)).astype(np.float32)))
    place = int(distance.argmax())
    is_near = one.is_floating_point() and ulps <= MOST_ULPS
    return float(a[place]), float(b[place]), f'{ulps:.3g} ulp' if is_near else f'{distance[place]:.3g}'
