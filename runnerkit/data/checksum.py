"""Checksums of batches: to see whether two runs, or two ranks, begin with the same one."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

#: At most about so many numbers of each tensor are looked at, spread evenly over all of it.
_LOOKED_AT = 16384


def batch_checksums(batch: Any) -> dict[str, int]:
    """A CRC-32 for each tensor, array, number and text in ``batch``, by its place."""
    return dict(_checksums('batch', batch))


def _checksums(place: str, value: Any) -> Iterator[tuple[str, int]]:
    if isinstance(value, Tensor):
        has_numbers = value.layout is torch.strided and not (value.is_nested or value.is_meta or value.is_inference())
        if type(value) is Tensor and has_numbers:
            flat = value.detach().resolve_conj().resolve_neg().reshape(-1)
            some = flat[:: max(1, len(flat) // _LOOKED_AT)].cpu().contiguous()
            raw = some.view(torch.uint8).numpy().tobytes() if len(some) else b''
            yield place, zlib.crc32(raw, _of_text(f'{tuple(value.shape)} {value.dtype}'))
    elif isinstance(value, np.ndarray):
        if value.dtype != object:
            numbers = value.reshape(-1)
            part = np.ascontiguousarray(numbers[:: max(1, len(numbers) // _LOOKED_AT)])
            yield place, zlib.crc32(part.tobytes(), _of_text(f'{value.shape} {value.dtype}'))
    elif isinstance(value, (bool, int, float, complex, str, bytes, np.generic)):
        yield place, _of_text(repr(value))
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _checksums(f'{place}[{key!r}]', each)
    elif isinstance(value, (list, tuple)):
        for i, each in enumerate(value[:1000]):
            yield from _checksums(f'{place}[{i}]', each)
    elif hasattr(value, 'data') and hasattr(value, 'cpu_only'):  # a DataContainer
        yield from _checksums(f'{place}.data', value.data)


def _of_text(text: str) -> int:
    return zlib.crc32(text.encode())
