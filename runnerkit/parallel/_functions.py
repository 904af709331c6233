"""Copies tensors, also in lists, to one or several devices; device -1 leaves them where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor


def scatter(
    input: Any, devices: Sequence[int], streams: Sequence[Any] | None = None, keep_strides: bool = False
) -> Any:
    """Copy the tensors of ``input`` to ``devices``; a list is divided into equal blocks, one per device."""
    streams = [None] * len(devices) if streams is None else streams
    if isinstance(input, list):
        block = -(-len(input) // len(devices))
        return [
            scatter(each, [devices[i // block]], [streams[i // block]], keep_strides) for i, each in enumerate(input)
        ]
    if not isinstance(input, Tensor):
        _refuse(input)
    if not keep_strides:
        input = input.contiguous()
    if devices[0] == -1:
        return input
    with torch.cuda.device(devices[0]), torch.cuda.stream(streams[0]):
        return input.to(torch.device('cuda', devices[0]), non_blocking=True)


def synchronize_stream(output: Any, devices: Sequence[int], streams: Sequence[Any]) -> None:
    """Let the current streams of ``devices`` wait for the copies in ``output`` that `scatter` made on ``streams``."""
    if isinstance(output, list):
        block = len(output) // len(devices)
        for i, device in enumerate(devices):
            for each in output[i * block : (i + 1) * block]:
                synchronize_stream(each, [device], [streams[i]])
    elif isinstance(output, Tensor):
        if output.numel():
            with torch.cuda.device(devices[0]):
                current = torch.cuda.current_stream()
                current.wait_stream(streams[0])
                output.record_stream(current)
    else:
        _refuse(output)


def get_input_device(input: Any) -> int:
    """Return the GPU number of the first tensor in ``input`` that is on a GPU, else -1."""
    if isinstance(input, list):
        return next((device for device in map(get_input_device, input) if device != -1), -1)
    if not isinstance(input, Tensor):
        _refuse(input)
    return input.get_device() if input.is_cuda else -1


class Scatter:
    """`scatter` as MMCV calls it."""

    @staticmethod
    def forward(target_gpus: Sequence[int], input: Any, keep_strides: bool = False) -> tuple[Any, ...]:
        """Return the result of `scatter` as a tuple of the list's entries, or of the one tensor."""
        output = scatter(input, target_gpus, keep_strides=keep_strides)
        return tuple(output) if isinstance(output, list) else (output,)


def _refuse(value: Any) -> NoReturn:
    raise TypeError(
        f'Unknown type {type(value)}: only tensors, and lists of them, are brought to a device; give '
        'DataContainer(…, cpu_only=True) for anything else'
    )
