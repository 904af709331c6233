"""Moving a batch to a device, however it is nested."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor


def to_device(data: Any, device: torch.device | str | int) -> Any:
    """``data`` with every tensor on ``device``.

    Args:
        data: tensors and objects with a method ``to``, in dicts, lists, tuples and named tuples. Everything else
            stays as it is.
        device: where to. Tensors that are there already are not copied; pinned ones are on their way when this returns.
    """
    if isinstance(device, (str, int)):
        device = torch.device(device)
    if isinstance(data, Tensor):
        # To a device, what reads the copy later waits for it; nobody does in the other direction.
        return data.to(device, non_blocking=device.type == 'cuda')
    if isinstance(data, dict):
        moved = {key: to_device(value, device) for key, value in data.items()}
        return moved if type(data) is dict else _like(data, moved)
    if isinstance(data, tuple) and hasattr(data, '_fields'):
        return type(data)(*(to_device(value, device) for value in data))
    if isinstance(data, (list, tuple)):
        return type(data)(to_device(value, device) for value in data)
    return data.to(device) if callable(getattr(data, 'to', None)) else data


def _like(data: dict[Any, Any], items: dict[Any, Any]) -> dict[Any, Any]:
    """A dict of the kind of ``data`` (ordered, with defaults, of a library), with ``items`` in it."""
    made = copy.copy(data)
    made.update(items)
    return made
