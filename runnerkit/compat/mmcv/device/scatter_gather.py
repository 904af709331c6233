"""Moves batches to accelerators of the kind that this machine has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from runnerkit.compat.mmcv.device.utils import get_device
from runnerkit.parallel import DataContainer, to_device
from runnerkit.parallel.scatter_gather import like, sequence_like

Target = int | str | torch.device


def scatter(inputs: Any, target_devices: Sequence[Target], dim: int = 0) -> list[Any]:
    """Return ``inputs`` for each device, with every `DataContainer` unpacked.

    Args:
        inputs: tensors and containers in dicts, lists and tuples. Each device gets its entry of a container, which
            stays on the CPU if it is ``cpu_only``; all devices get everything else.
        target_devices: devices, or device numbers of the kind that `get_device` names; -1 is the CPU.
        dim: no effect (accepted for compatibility with MMCV); a process has one device, so tensors are not split.
    """
    return [_share(inputs, number, device_of(target)) for number, target in enumerate(target_devices)]


def scatter_kwargs(
    inputs: Sequence[Any], kwargs: dict[str, Any], target_devices: Sequence[Target], dim: int = 0
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """`scatter` for the arguments of a call; returns two tuples with one entry per device, empty without arguments."""
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
    """Return the device for ``target``: a number means this machine's kind of accelerator, -1 the CPU."""
    if not isinstance(target, int):
        return torch.device(target)
    kind = get_device()
    return torch.device('cpu') if target == -1 or kind == 'cpu' else torch.device(kind, target)
