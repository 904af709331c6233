"""Moves nested batches to devices."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from runnerkit.utils.lazy import loaded_class

#: Most runs import none.
CONTAINER = 'runnerkit.parallel.data_container:DataContainer'


def scatter(inputs: Any, target_gpus: Sequence[int], dim: int = 0, keep_strides: bool = False) -> Sequence[Any]:
    """Return the share of ``inputs`` for each device, with every `DataContainer` unpacked.

    Args:
        inputs: tensors and `DataContainer` in dicts, lists and tuples. Tensors are split along ``dim``; each device
            gets its entry of a container; all devices get everything else.
        target_gpus: the numbers of the GPUs; ``[-1]`` means one device, and tensors stay where they are.
        dim: the dimension in which tensors are split.
        keep_strides: leave tensors in their memory format; else they become contiguous, as in MMCV.

    Raises:
        TypeError: a container that is not ``cpu_only`` contains something other than tensors.
    """
    if isinstance(inputs, Tensor):
        if len(target_gpus) > 1:
            return nn.parallel.scatter(inputs, target_gpus, dim)
        return [on_gpus(inputs, target_gpus, keep_strides)]
    if isinstance(inputs, loaded_class(CONTAINER)):
        if inputs.cpu_only:
            return inputs.data
        moved = on_gpus(inputs.data, target_gpus, keep_strides)
        return moved if isinstance(moved, list) else [moved]
    if isinstance(inputs, dict) and inputs:
        shares = zip(*(scatter(value, target_gpus, dim, keep_strides) for value in inputs.values()), strict=False)
        return [like(inputs, dict(zip(inputs, share, strict=True))) for share in shares]
    if isinstance(inputs, (list, tuple)) and inputs:
        shares = zip(*(scatter(value, target_gpus, dim, keep_strides) for value in inputs), strict=False)
        return [sequence_like(inputs, share) for share in shares]
    return [inputs for _ in target_gpus]


def on_gpus(value: Any, gpus: Sequence[int], keep_strides: bool = False) -> Any:
    """A tensor on the GPU with the first of these numbers, -1 for where it is; lists in equal blocks, one per GPU."""
    if isinstance(value, list):
        block = -(-len(value) // len(gpus))
        return [on_gpus(each, [gpus[i // block]], keep_strides) for i, each in enumerate(value)]
    if not isinstance(value, Tensor):
        raise not_a_tensor(value)
    value = value if keep_strides else value.contiguous()
    return value if gpus[0] == -1 else to_device(value, gpus[0])


def not_a_tensor(value: Any) -> TypeError:
    """The error about what cannot be brought to a device."""
    return TypeError(
        f'Unknown type {type(value)}: only tensors, and lists of them, are brought to a device; give '
        'DataContainer(…, cpu_only=True) for anything else'
    )


def scatter_kwargs(
    inputs: Any, kwargs: Any, target_gpus: Sequence[int], dim: int = 0, keep_strides: bool = False
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """`scatter` for the arguments of a call; returns two tuples with one entry per device."""
    inputs = list(scatter(inputs, target_gpus, dim, keep_strides)) if inputs else []
    kwargs = list(scatter(kwargs, target_gpus, dim, keep_strides)) if kwargs else []
    inputs += [()] * (len(kwargs) - len(inputs))
    kwargs += [{} for _ in range(len(inputs) - len(kwargs))]
    return tuple(inputs), tuple(kwargs)


def to_device(data: Any, device: torch.device | str | int) -> Any:
    """Move every tensor of ``data`` to ``device``.

    Args:
        data: tensors and objects with a method ``to``, in dicts, lists, tuples and named tuples. A `DataContainer`
            stays one, and its ``cpu_only`` data stay on the CPU. Everything else is unchanged.
        device: the target. Tensors that are there already are not copied. Copies of pinned tensors are asynchronous.
    """
    if isinstance(device, (str, int)):
        device = torch.device(device)
    if isinstance(data, Tensor):
        # Kernels on the device wait for an asynchronous copy to it. In the other direction, nothing would wait.
        return data.to(device, non_blocking=device.type == 'cuda')
    if isinstance(data, dict):
        return like(data, {key: to_device(value, device) for key, value in data.items()})
    if isinstance(data, (list, tuple)):
        return sequence_like(data, [to_device(value, device) for value in data])
    if isinstance(data, loaded_class(CONTAINER)):
        if data.cpu_only:
            return data
        moved = copy.copy(data)
        moved._data = to_device(data.data, device)
        return moved
    return data.to(device) if callable(getattr(data, 'to', None)) else data


def like(data: dict[Any, Any], items: dict[Any, Any]) -> dict[Any, Any]:
    """Return a dict of the same class as ``data``, with ``items`` in it."""
    if type(data) is dict:
        return items
    made = copy.copy(data)
    made.update(items)
    return made


def sequence_like(data: Any, items: Sequence[Any]) -> Any:
    """Return a list, tuple or named tuple of the same class as ``data``, with ``items`` in it."""
    return type(data)(*items) if hasattr(data, '_fields') else type(data)(items)
