"""The wrapper for one device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from runnerkit.parallel.steps import Steps
from runnerkit.parallel.wrappers import MODULE_WRAPPERS
from runnerkit.utils.exceptions import WrongValue


@MODULE_WRAPPERS.register_module()
class MMDataParallel(Steps, nn.parallel.DataParallel):
    """Puts a model on one GPU, or leaves it on the CPU; moves batches to it and unpacks their containers.

    Args:
        module: the model.
        device_ids: the GPU's number, in a list; ``[]``, ``[-1]``, or a machine without CUDA, means the CPU.
        output_device: no effect (accepted for compatibility with MMCV); outputs stay on the model's device.
        dim: no effect (accepted for compatibility with MMCV); with one device nothing is split.

    Raises:
        ValueError: several devices.
    """

    def __init__(
        self, module: nn.Module, device_ids: Sequence[int] | None = None, output_device: Any = None, dim: int = 0
    ) -> None:
        # DataParallel is for several GPUs in one process. Only its class is used here, for isinstance.
        nn.Module.__init__(self)
        given = [0] if device_ids is None else device_ids or [-1]
        numbers = [torch.device(each).index if isinstance(each, str) else each for each in given]
        if len(numbers) != 1:
            raise WrongValue(
                f'MMDataParallel supports one device only, but got device_ids={device_ids!r}: train on several '
                f'GPUs with one process each, by torchrun and --launcher pytorch (MMDistributedDataParallel), or give '
                f'device_ids=[0]'
            )
        on_gpu = torch.cuda.is_available() and numbers[0] != -1
        self.module = module
        self.dim = dim
        self.device_ids = numbers if on_gpu else []
        self.output_device = output_device if output_device is not None else numbers[0]
        self.src_device_obj = torch.device('cuda', numbers[0]) if on_gpu else torch.device('cpu')
        module.to(self.src_device_obj)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Call the model with its arguments on its device."""
        return self._direct('forward', *inputs, **kwargs)

    def _model_device(self) -> torch.device:
        return self.src_device_obj
