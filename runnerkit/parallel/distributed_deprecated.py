"""The old wrapper for several processes, which leaves averaging the gradients to the optimizer hook."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from runnerkit.distributed import broadcast_buffers as broadcast
from runnerkit.parallel.steps import Steps
from runnerkit.parallel.wrappers import MODULE_WRAPPERS


@MODULE_WRAPPERS.register_module(name='MMDistributedDataParallelDeprecated')
class MMDistributedDataParallel(Steps, nn.Module):
    """Gives all ranks rank 0's weights at the start; afterwards it only moves batches to the device.

    It does not average gradients; ``runnerkit.distributed.allreduce_grads`` does, once before each step. New code
    should use ``runnerkit.parallel.MMDistributedDataParallel``.

    Args:
        module: the model.
        dim: the dimension in which tensors would be split among several devices.
        broadcast_buffers: give all ranks rank 0's buffers as well.
        bucket_cap_mb: no effect; accepted for compatibility with MMCV.
    """

    def __init__(
        self, module: nn.Module, dim: int = 0, broadcast_buffers: bool = True, bucket_cap_mb: int = 25
    ) -> None:
        super().__init__()
        self.module = module
        self.dim = dim
        self.broadcast_buffers = broadcast_buffers
        self.broadcast_bucket_size = bucket_cap_mb * 2**20
        device = self._model_device()
        self.device_ids = [device.index] if device is not None and device.type == 'cuda' else None
        broadcast(module.parameters())
        if broadcast_buffers:
            broadcast(module.buffers())

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Call the model with its arguments on its device."""
        return self._direct('forward', *inputs, **kwargs)

    def _model_device(self) -> torch.device | None:
        first = next(self.module.parameters(), None)
        return None if first is None else first.device
