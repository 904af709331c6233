"""Copies tensors, also in lists, to an accelerator; device -1 is the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from runnerkit.compat.mmcv.device.scatter_gather import Target, device_of
from runnerkit.parallel import to_device


def scatter(input: Any, devices: Sequence[Target]) -> Any:
    """Copy the tensors of ``input`` to the first of ``devices``.

    Args:
        input: a tensor, or a list of tensors and lists.
        devices: devices, or device numbers of the kind that `runnerkit.compat.mmcv.device.get_device` names.

    Raises:
        TypeError: ``input`` is, or contains, something else.
    """
    if isinstance(input, list):
        return [scatter(each, devices) for each in input]
    if not isinstance(input, Tensor):
        raise TypeError(f'Unknown type {type(input)}: only tensors, and lists of them, are brought to a device')
    return to_device(input, device_of(devices[0]))


class Scatter:
    """`scatter` as MMCV calls it."""

    @staticmethod
    def forward(target_devices: Sequence[Target], input: Any) -> tuple[Any, ...]:
        """Return the result of `scatter` as a tuple of the list's entries, or of the one tensor."""
        output = scatter(input, target_devices)
        return tuple(output) if isinstance(output, list) else (output,)
