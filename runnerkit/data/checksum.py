"""Checksums of batches: to see whether a batch that is read again is the one that was trained on."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

#: At most about so many numbers of each tensor are looked at, spread evenly over all of it.
_LOOKED_AT = 16384


def batch_checksums(batch: Any) -> dict[str, list[int]]:
    """A CRC-32 for each tensor, array, number and text in ``batch``, by its place; with it, how often the tensor was
    written to."""
    return {place: [checksum, writes] for place, checksum, writes in _checksums('batch', batch)}


def same_batch(batch: Any, checksums: Mapping[str, Sequence[int]]) -> bool | None:
    """Whether ``batch`` has these checksums, as far as they can be compared; None if nothing can.

    Tensors that were written to in between are left out: a step may have normalised its batch in place.
    """
    found = batch_checksums(batch)
    common = [place for place in found.keys() & checksums.keys() if found[place][1] == checksums[place][1]]
    return all(found[place][0] == checksums[place][0] for place in common) if common else None


def _checksums(place: str, value: Any) -> Iterator[tuple[str, int, int]]:
    if isinstance(value, Tensor):
        has_numbers = value.layout is torch.strided and not (value.is_nested or value.is_meta or value.is_inference())
        if type(value) is Tensor and has_numbers:
            flat = value.detach().resolve_conj().resolve_neg().reshape(-1)
            some = flat[:: max(1, len(flat) // _LOOKED_AT)].cpu().contiguous()
            raw = some.view(torch.uint8).numpy().tobytes() if len(some) else b''
            yield place, zlib.crc32(raw, _of_text(f'{tuple(value.shape)} {value.dtype}')), value._version
    elif isinstance(value, np.ndarray):
        if value.dtype != object:
            numbers = value.reshape(-1)
            part = np.ascontiguousarray(numbers[:: max(1, len(numbers) // _LOOKED_AT)])
            yield place, zlib.crc32(part.tobytes(), _of_text(f'{value.shape} {value.dtype}')), 0
    elif isinstance(value, (bool, int, float, complex, str, bytes, np.generic)):
        yield place, _of_text(repr(value)), 0
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
