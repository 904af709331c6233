"""Model wrappers for Cambricon's MLU."""

from __future__ import annotations

from runnerkit.compat.mmcv.device.wrappers import AcceleratorDataParallel, AcceleratorDistributedDataParallel
from runnerkit.parallel import MODULE_WRAPPERS

__all__ = ['MLUDataParallel', 'MLUDistributedDataParallel']


@MODULE_WRAPPERS.register_module()
class MLUDataParallel(AcceleratorDataParallel):
    """A model on one MLU."""

    kind = 'mlu'
    package = 'torch_mlu'


@MODULE_WRAPPERS.register_module()
class MLUDistributedDataParallel(AcceleratorDistributedDataParallel):
    """A model on the MLU of each process."""
