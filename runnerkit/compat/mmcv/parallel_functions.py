"""MMCV's `parallel._functions`: copies to one or several GPUs, on streams; device -1 leaves tensors where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel._functions import _get_stream  # noqa: F401 (which downstream takes from here)

from runnerkit.parallel.scatter_gather import not_a_tensor, on_gpus


def scatter(input: Any, devices: Sequence[int], streams: Sequence[Any] | None = None) -> Any:
    """Copy the tensors of ``input`` to ``devices``; a list is divided into equal blocks, one per device."""
    streams = [None] * len(devices) if streams is None else streams
    if isinstance(input, list):
        block = -(-len(input) // len(devices))
        return [scatter(each, [devices[i // block]], [streams[i // block]]) for i, each in enumerate(input)]
    with torch.cuda.stream(streams[0]):
        return on_gpus(input, devices)


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
        raise not_a_tensor(output)


def get_input_device(input: Any) -> int:
    """Return the GPU number of the first tensor in ``input`` that is on a GPU, else -1."""
    if isinstance(input, list):
        return next((device for device in map(get_input_device, input) if device != -1), -1)
    if not isinstance(input, Tensor):
        raise not_a_tensor(input)
    return input.get_device() if input.is_cuda else -1


class Scatter:
    """`scatter` as MMCV calls it."""

    @staticmethod
    def forward(target_gpus: Sequence[int], input: Any) -> tuple[Any, ...]:
        """Return the result of `scatter` as a tuple of the list's entries, or of the one tensor."""
        output = scatter(input, target_gpus)
        return tuple(output) if isinstance(output, list) else (output,)
