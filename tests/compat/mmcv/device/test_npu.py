"""Wrappers for the NPU, as far as a machine without one shows them."""

import pytest
from support import Tiny

from runnerkit.compat.mmcv.device.npu import NPUDataParallel, NPUDistributedDataParallel
from runnerkit.parallel import MODULE_WRAPPERS, MMDataParallel, MMDistributedDataParallel


def test_they_are_wrappers_like_the_others():
    assert issubclass(NPUDataParallel, MMDataParallel)
    assert issubclass(NPUDistributedDataParallel, MMDistributedDataParallel)
    assert MODULE_WRAPPERS.get('NPUDataParallel') is NPUDataParallel
    assert MODULE_WRAPPERS.get('NPUDistributedDataParallel') is NPUDistributedDataParallel


def test_without_its_library():
    with pytest.raises(RuntimeError, match="needs a device 'npu', .* install and import torch_npu"):
        NPUDataParallel(Tiny(), device_ids=[0])
