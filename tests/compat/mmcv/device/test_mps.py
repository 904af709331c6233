"""The wrapper for a Mac's GPU, also where there is none."""

import torch
from support import Tiny

from runnerkit.compat.mmcv.device.mps import MPSDataParallel
from runnerkit.compat.mmcv.torch_layers import IS_MPS_AVAILABLE
from runnerkit.parallel import is_module_wrapper


def test_a_step():
    model = MPSDataParallel(Tiny())
    assert is_module_wrapper(model)
    kind = 'mps' if IS_MPS_AVAILABLE else 'cpu'
    assert model.src_device_obj.type == kind
    outputs = model.train_step((torch.rand(4, 4), torch.rand(4, 1)), None)
    assert (outputs['loss'].device.type, outputs['num_samples']) == (kind, 4)
