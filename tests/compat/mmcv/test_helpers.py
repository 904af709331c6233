from torch import nn

from runnerkit.compat.mmcv.misc import get_bases_name, register_torch_optimizers
from runnerkit.optim import OPTIMIZERS


def test_names():
    assert get_bases_name(nn.Conv2d(1, 1, 1)) == ['_ConvNd']
    assert 'AdamW' in register_torch_optimizers()
    assert all(name in OPTIMIZERS for name in register_torch_optimizers())
