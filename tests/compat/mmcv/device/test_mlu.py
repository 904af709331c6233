"""Wrappers for the MLU, as far as a machine without one shows them."""

import pytest
from support import Tiny

from runnerkit.compat.mmcv.device.mlu import MLUDataParallel, MLUDistributedDataParallel
from runnerkit.parallel import MODULE_WRAPPERS, MMDataParallel, MMDistributedDataParallel


def test_they_are_wrappers_like_the_others():
    assert issubclass(MLUDataParallel, MMDataParallel)
    assert issubclass(MLUDistributedDataParallel, MMDistributedDataParallel)
    assert MODULE_WRAPPERS.get('MLUDataParallel') is MLUDataParallel
    assert MODULE_WRAPPERS.get('MLUDistributedDataParallel') is MLUDistributedDataParallel


def test_without_its_library():
    with pytest.raises(RuntimeError, match="needs a device 'mlu', .* install and import torch_mlu"):
        MLUDataParallel(Tiny(), device_ids=[0])
