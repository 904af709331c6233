"""The rows of a TensorDataset, taken at once: most of the time that a loader needs for them goes into single rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset, get_worker_info
from torch.utils.data._utils import collate


def rows(dataset: TensorDataset, indices: Sequence[Any]) -> list[Tensor] | None:
    """What torch collates of these samples, at a fraction of the cost; None for whatever is better left to torch."""
    tensors = dataset.tensors
    if len(indices) < 2 or not tensors or not all(type(index) is int for index in indices):
        return None
    # A worker collates into shared memory, and a user may teach torch other ways to collate.
    ways = collate.default_collate_fn_map
    is_as_ever = ways.get(Tensor) is collate.collate_tensor_fn and tuple not in ways
    if get_worker_info() is not None or not is_as_ever or not all(map(_has_plain_rows, tensors)):
        return None
    if not 0 <= min(indices) <= max(indices) < min(map(len, tensors)):
        return None
    chosen, threads = torch.tensor(indices, device='cpu'), torch.get_num_threads()
    if threads != 1:  # where cores are scarce, several take up to twenty times as long
        torch.set_num_threads(1)
    try:
        return [tensor.index_select(0, chosen.to(tensor.device)) for tensor in tensors]
    except RuntimeError:  # not of each dtype; the reason is torch's to tell
        return None
    finally:
        if threads != 1:
            torch.set_num_threads(threads)


def _has_plain_rows(tensor: Tensor) -> bool:
    """Whether the rows of ``tensor`` are plain numbers, one after the other."""
    return (
        type(tensor) is Tensor
        and tensor.layout is torch.strided
        and tensor.dim() > 0
        and not (tensor.requires_grad or tensor.is_conj() or tensor.is_neg() or tensor.is_nested)
        and tensor.stride() == torch.empty(tensor.shape, device='meta').stride()
    )
