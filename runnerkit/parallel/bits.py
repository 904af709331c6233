"""The bits of tensors as integers, and sums of them that every bit changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from runnerkit.parallel.dtensors import all_of, is_dtensor, local_part

#: Integers by the bytes of a number. Those of 8 bytes are two words: a sum of 64 bits would miss two flipped signs.
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int32}

#: So many words are weighted at once.
_BLOCK = 2**18

#: Tensors of fewer words are joined before.
_SMALL = 2**17

_MASK = 2**64 - 1


def has_bits(tensor: Tensor) -> bool:
    """Whether this process has all bits of ``tensor`` and can read them."""
    if is_lazy(tensor) or is_dtensor(tensor):
        return False
    plain = tensor.detach()
    is_dense = type(plain) is Tensor and plain.layout == torch.strided
    return is_dense and not (plain.is_meta or plain.is_quantized) and plain.numel() > 0


def bit_words(tensor: Tensor) -> Tensor:
    """The bits of ``tensor`` as a vector of integers of at most 32 bits, on its device."""
    real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return real.detach().resolve_neg().reshape(-1).contiguous().view(_WORDS[real.element_size()])


def in_memory_order(tensor: Tensor) -> Tensor:
    """A view of ``tensor`` with the strides of a contiguous one, if it is dense (channels last): its words then need no
    copy, but come in another order."""
    return tensor.permute(sorted(range(tensor.dim()), key=tensor.stride, reverse=True))


@torch.no_grad()
def bit_sums(parts: Iterable[tuple[int, Tensor]]) -> list[Tensor]:
    """For each device a sum of words, modulo 2**64, in which each place has its own odd weight.

    Any single flipped bit changes the sum. It adds up: the sums over the parts of a tensor make that of the tensor.
    """
    totals: dict[torch.device, Tensor] = {}
    for place, words in _runs(parts):
        weights = _place_weights(words.device)
        while len(words):
            block, inside = divmod(place, _BLOCK)
            piece = words[: _BLOCK - inside]
            total = _weighted_sum(piece, weights[inside : inside + len(piece)]) * _weight(block)
            totals[words.device] = totals[words.device].add_(total) if words.device in totals else total
            place, words = place + len(piece), words[len(piece) :]
    return list(totals.values())


def checksum(tensor: Tensor) -> int:
    """`bit_sums` of one tensor; waits for its device."""
    return int(bit_sums([(0, bit_words(tensor))])[0])


def placed_words(tensors: Iterable[Tensor], is_first: bool) -> Iterator[tuple[int, Tensor]]:
    """The words of ``tensors`` that this process adds to the sum over all, with their places among all words.

    Of a sharded tensor, these are the words of its part; all others are those of the first process. Every rank calls
    it: a tensor that is not split along its first dimension over all ranks is gathered.
    """
    begin = 0
    for tensor in tensors:
        is_wide = tensor.element_size() == (16 if tensor.is_complex() else 8)
        per_number = (1 + is_wide) * (1 + tensor.is_complex())
        first = _first_row(tensor) if is_dtensor(tensor) else None
        if first is not None:
            part = local_part(tensor)
            if part.numel():
                yield begin + first * tensor.numel() // tensor.shape[0] * per_number, bit_words(part)
        else:
            found = all_of(tensor)
            if is_first and has_bits(found):
                yield begin, bit_words(found)
        begin += tensor.numel() * per_number


def _first_row(tensor: Any) -> int | None:
    """The first row of this process's part of a sharded tensor; None if the parts are no rows, one on each rank."""
    (placement, *others), mesh = tensor.placements, tensor.device_mesh
    if others or not placement.is_shard(0):
        return None
    rows: int = tensor.shape[0]
    return min(rows, mesh.get_local_rank() * -(-rows // mesh.size()))


def _weighted_sum(words: Tensor, weights: Tensor) -> Tensor:
    """The sum of ``words``, each times its weight, modulo 2**64."""
    if words.device.type != 'cpu':
        return (words * weights).sum()
    # On a CPU, numpy converts words in the processor's cache, in half the time of torch, which copies them before.
    return weights.new_tensor(int(np.einsum('i,i->', words.numpy(), weights.numpy(), dtype=np.int64)))


def _runs(parts: Iterable[tuple[int, Tensor]]) -> Iterator[tuple[int, Tensor]]:
    """``parts`` with small neighbours put together, which takes fewer calls."""
    run: list[Tensor] = []
    start = end = 0
    for place, words in parts:
        is_next = run and place == end and words.device == run[0].device
        if run and not (is_next and len(words) < _SMALL > end - start):
            yield start, run[0] if len(run) == 1 else torch.cat(run)
            run = []
        start, end = (start if run else place), place + len(words)
        run.append(words)
    if run:
        yield start, run[0] if len(run) == 1 else torch.cat(run)


@cache
def _place_weights(device: torch.device) -> Tensor:
    """The weights of the places of a block: odd numbers that no short pattern of changes cancels."""
    mixed = (torch.arange(1, _BLOCK + 1, device=device)) * 0x1E3779B97F4A7C15
    mixed = (mixed ^ (mixed >> 31)) * 0x3F58476D1CE4E5B9
    return (mixed ^ (mixed >> 29)) | 1


def _weight(block: int) -> int:
    """The odd weight of a block, as a signed number of 64 bits."""
    mixed = (block + 1) * 0x9E3779B97F4A7C15 & _MASK
    mixed = ((mixed ^ mixed >> 31) * 0xBF58476D1CE4E5B9 & _MASK) | 1
    return mixed - 2**64 if mixed >= 2**63 else mixed
