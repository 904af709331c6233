"""Bringing a batch to accelerators of the kind that this machine has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from runnerkit.compat.device.utils import get_device
from runnerkit.parallel import DataContainer, to_device
from runnerkit.parallel.scatter_gather import like, sequence_like

Target = int | str | torch.device


def scatter(inputs: Any, target_devices: Sequence[Target], dim: int = 0) -> list[Any]:
    """``inputs`` for each device, with every `DataContainer` unpacked.

    Args:
        inputs: tensors and containers in dicts, lists and tuples. Of a container each device gets its entry, on the CPU
            if that is where it belongs; anything else goes to all of them.
        target_devices: devices, or numbers of those of the kind that `get_device` names; -1 is the CPU.
        dim: taken for MMCV's sake; tensors are not split, since a process has one device.
    """
    return [_share(inputs, number, device_of(target)) for number, target in enumerate(target_devices)]


def scatter_kwargs(
    inputs: Sequence[Any], kwargs: dict[str, Any], target_devices: Sequence[Target], dim: int = 0
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """`scatter` for the arguments of a call: two tuples with an entry for each device, empty if there are none."""
    if not inputs and not kwargs:
        return (), ()
    return tuple(scatter(tuple(inputs), target_devices, dim)), tuple(scatter(kwargs, target_devices, dim))


def _share(inputs: Any, number: int, device: torch.device) -> Any:
    if isinstance(inputs, Tensor):
        return to_device(inputs, device)
    if isinstance(inputs, DataContainer):
        own = inputs.data[number]
        return own if inputs.cpu_only else to_device(own, device)
    if isinstance(inputs, dict):
        return like(inputs, {key: _share(value, number, device) for key, value in inputs.items()})
    if isinstance(inputs, (list, tuple)):
        return sequence_like(inputs, [_share(value, number, device) for value in inputs])
    return inputs


def device_of(target: Target) -> torch.device:
    """The device that ``target`` means: a number is one of this machine's kind of accelerator, -1 the CPU."""
    if not isinstance(target, int):
        return torch.device(target)
    kind = get_device()
    return torch.device('cpu') if target == -1 or kind == 'cpu' else torch.device(kind, target)
