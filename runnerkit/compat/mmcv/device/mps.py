"""The model wrapper for the GPU of a Mac."""

from __future__ import annotations

import torch

from runnerkit.compat.mmcv import torch_layers
from runnerkit.compat.mmcv.device.wrappers import AcceleratorDataParallel
from runnerkit.parallel import MODULE_WRAPPERS

__all__ = ['MPSDataParallel']


@MODULE_WRAPPERS.register_module()
class MPSDataParallel(AcceleratorDataParallel):
    """A model on the GPU of a Mac, or on the CPU if there is none."""

    kind = 'mps'
    package = 'torch for macOS'

    def _own_device(self, number: int) -> torch.device:
        return super()._own_device(number) if torch_layers.IS_MPS_AVAILABLE else torch.device('cpu')
