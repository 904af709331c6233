"""The rows of a TensorDataset, taken at once: most of the time that a loader needs for them goes into single rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset, get_worker_info
from torch.utils.data._utils import collate

#: What torch selects from by index on every device; labels of other types, such as uint16, are refused.
_TYPES = frozenset(
    {
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
    }
)

#: Smaller batches are collated as fast row by row.
_FEWEST = 4


def rows(dataset: TensorDataset, indices: Sequence[Any]) -> list[Tensor] | None:
    """What torch collates of these samples, at a fraction of the cost; None for whatever is better left to torch.

    As in `runnerkit.data.seeding.private_streams`, two threads must not be inside at the same time.
    """
    tensors = dataset.tensors
    if len(indices) < _FEWEST or not tensors or not all(type(index) is int for index in indices):
        return None
    # A worker collates into shared memory, and a user may teach torch other ways to collate.
    ways = collate.default_collate_fn_map
    is_as_ever = ways.get(Tensor) is collate.collate_tensor_fn and tuple not in ways
    if get_worker_info() is not None or not is_as_ever or not all(map(_has_plain_rows, tensors)):
        return None
    if not 0 <= min(indices) <= max(indices) < min(map(len, tensors)):
        return None
    chosen, threads = torch.tensor(indices, device='cpu'), torch.get_num_threads()
    try:
        if threads != 1:  # where cores are scarce, several take up to twenty times as long
            torch.set_num_threads(1)
        return [tensor.index_select(0, chosen.to(tensor.device)) for tensor in tensors]
    except RuntimeError:  # such as too little memory: torch's own way tells for which samples
        return None
    finally:
        if threads != 1:
            torch.set_num_threads(threads)


def _has_plain_rows(tensor: Tensor) -> bool:
    """Whether the rows of ``tensor`` are plain numbers, one after the other, with the strides of a new tensor."""
    if type(tensor) is not Tensor or tensor.layout is not torch.strided or tensor.dtype not in _TYPES:
        return False
    if tensor.is_nested or tensor.dim() == 0 or tensor.requires_grad or tensor.is_conj() or tensor.is_neg():
        return False
    step = 1
    for length, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if stride != step:  # `is_contiguous` allows any stride for a length of one
            return False
        step *= max(length, 1)
    return True
