"""Compares what two checkpoints hold: to the bit, and by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from runnerkit.parallel.bits import checksum, has_bits
from runnerkit.utils.logging import printable

#: What is compared, in the order in which a difference is looked for. Settings and versions are compared elsewhere.
KINDS = {
    'weights': r'state_dict\.(.+)',
    'optimizer state': r'optimizer\.((?:.+\.)?state\..+)',
    'learning rates and other options of the optimizer': r'optimizer\.((?:.+\.)?param_groups\..+)',
    'random states': r'runnerkit\.(ranks\.\d+\.rng\..+)',
    'position in the data': r'runnerkit\.(progress\..+|ranks\.\d+\.readers\.\d+\.(?:batches|samples|epoch))',
    'last batch': r'runnerkit\.(ranks\.\d+\.readers\.\d+\.checksums.+)',
    'buffers': r'runnerkit\.(ranks\.\d+\.buffers\..+)',
    'updates': r'runnerkit\.(ranks\.\d+\.updates\..+)',
    'hooks': r'runnerkit\.(ranks\.\d+\.(?:hooks|parts)\.(?!\w*(?:Logger|Journal|History|Timer|Checkpoint)\w*Hook#).+)',
    'scores': r'runnerkit\.(scores\..+)',
}

#: A difference of nothing: one side has no such value.
MISSING = 'nothing'


class Unequal(NamedTuple):
    """A value that differs: which of `KINDS`, its name, on both sides as texts, and how large the difference is."""

    kind: str
    name: str
    one: str
    other: str
    size: float | None


def unequal_contents(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Unequal]:
    """What differs between the contents of two checkpoints, in the order of `KINDS` and of the files."""
    before, after = dict(_leaves(one)), dict(_leaves(other))
    found = []
    for kind, pattern in KINDS.items():
        for name in dict.fromkeys([*before, *after]):
            match = re.fullmatch(pattern, name)
            if match and not same(before.get(name), after.get(name)):
                a, b = before.get(name, MISSING), after.get(name, MISSING)
                found.append(Unequal(kind, match[1], *_shown(a, b)))
    return found


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal to the bit."""
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return type(one) is type(other) and (one == other or (one != one and other != other))
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not (has_bits(one) and has_bits(other)):
        return torch.equal(one, other)
    return checksum(one) == checksum(other)


def _shown(one: Any, other: Any) -> tuple[str, str, float | None]:
    """Two values as short texts, tensors by the number that differs most; and by how much it does."""
    if isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape == other.shape and one.numel():
        wide = torch.complex128 if one.is_complex() or other.is_complex() else torch.float64
        apart = (one.to(wide) - other.to(wide)).abs().flatten().nan_to_num(torch.inf)
        place = int(apart.argmax())
        a, b = (f'{each.flatten()[place].item()!r}' for each in (one, other))
        return a, b, float(apart[place])
    numbers = all(isinstance(value, int | float) for value in (one, other))
    return described(one), described(other), abs(float(one) - float(other)) if numbers else None


def described(value: Any) -> str:
    """A value as a short text, a tensor by its type and shape."""
    if isinstance(value, Tensor):
        return f'{str(value.dtype).removeprefix("torch.")}{list(value.shape)}'
    return printable(str(value), 60)


def _leaves(value: Any, name: str = '') -> Iterator[tuple[str, Any]]:
    """All tensors and plain values, by dotted names."""
    if isinstance(value, Mapping):
        items: Any = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    else:
        yield name, value
        return
    for key, each in items:
        yield from _leaves(each, f'{name}.{key}' if name else str(key))
