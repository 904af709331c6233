"""Model wrappers for Ascend's NPU."""

from __future__ import annotations

from runnerkit.compat.mmcv.device.wrappers import AcceleratorDataParallel, AcceleratorDistributedDataParallel
from runnerkit.parallel import MODULE_WRAPPERS

__all__ = ['NPUDataParallel', 'NPUDistributedDataParallel']


@MODULE_WRAPPERS.register_module()
class NPUDataParallel(AcceleratorDataParallel):
    """A model on one NPU."""

    kind = 'npu'
    package = 'torch_npu'


@MODULE_WRAPPERS.register_module()
class NPUDistributedDataParallel(AcceleratorDistributedDataParallel):
    """A model on the NPU of each process."""
