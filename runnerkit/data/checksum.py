"""Checksums of batches: to see whether a batch that is read again is the one that was trained on."""

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
    """A CRC-32 for each tensor, array, number and text in ``batch``, by its place.

    Tensors that were written to since they were made are left out: a step may normalise its batch in place.
    """
    return dict(_checksums('batch', batch))


def same_batch(batch: Any, checksums: Mapping[str, int]) -> bool | None:
    """Whether ``batch`` has these checksums, as far as both have the same places; None if they share none."""
    found = batch_checksums(batch)
    common = found.keys() & checksums.keys()
    return all(found[place] == checksums[place] for place in common) if common else None


def _checksums(place: str, value: Any) -> Iterator[tuple[str, int]]:
    if isinstance(value, Tensor):
        if type(value) is Tensor and value.layout is torch.strided and not _was_written_to(value):
            flat = value.detach().reshape(-1)
            some = flat[:: max(1, len(flat) // _LOOKED_AT)].cpu().contiguous()
            yield place, zlib.crc32(some.view(torch.uint8).numpy(), _of_text(f'{tuple(value.shape)} {value.dtype}'))
    elif isinstance(value, np.ndarray):
        if value.dtype != object:
            flat = value.reshape(-1)
            some = np.ascontiguousarray(flat[:: max(1, len(flat) // _LOOKED_AT)])
            yield place, zlib.crc32(some.tobytes(), _of_text(f'{value.shape} {value.dtype}'))
    elif isinstance(value, (bool, int, float, str, bytes)):
        yield place, _of_text(repr(value))
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _checksums(f'{place}[{key!r}]', each)
    elif isinstance(value, (list, tuple)):
        for i, each in enumerate(value[:1000]):
            yield from _checksums(f'{place}[{i}]', each)
    elif hasattr(value, 'data') and hasattr(value, 'cpu_only'):  # a DataContainer
        yield from _checksums(f'{place}.data', value.data)


def _was_written_to(tensor: Tensor) -> bool:
    return tensor.is_inference() or tensor._version > 0


def _of_text(text: str) -> int:
    return zlib.crc32(text.encode())
