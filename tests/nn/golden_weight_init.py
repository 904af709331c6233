"""Record what the real MMCV 1.x initialises, as reference data for test_weight_init.py.

Run it with the Python of a virtual environment that holds mmcv 1.7.2 (no compiled ops are needed):

    python tests/nn/golden_weight_init.py tests/nn/golden_weight_init.json

Each case is an ``init_cfg``; recorded are the first numbers, and the sum, of every parameter of the network below.
"""

import json
import pathlib
import sys
import types

import torch
from torch import nn

LAYERS = ['Conv2d', 'BatchNorm2d', 'Linear', 'Conv1d']
CASES = [
    dict(type='Constant', val=0.5, bias=0.25, layer=LAYERS),
    dict(type='Constant', val=1, layer=['_BatchNorm', '_ConvNd']),
    dict(type='Constant', val=1, bias_prob=0.01, layer='Linear'),
    dict(type='Xavier', layer='Linear'),
    dict(type='Xavier', gain=2.0, distribution='uniform', bias=1, layer=['Linear', 'Conv1d']),
    dict(type='Normal', layer='Conv2d'),
    dict(type='Normal', mean=0.1, std=0.01, layer=['Conv2d', 'Linear'], override=dict(name='head')),
    dict(type='TruncNormal', layer='Linear'),
    dict(type='TruncNormal', mean=0.3, std=0.5, a=-0.2, b=0.7, bias=0.1, layer=['Linear', 'Conv2d']),
    dict(type='Uniform', layer='Linear'),
    dict(type='Uniform', a=-3, b=-1, bias=2, layer=['Conv1d', 'Conv2d']),
    dict(type='Kaiming', layer=['Conv2d', 'Linear']),
    dict(type='Kaiming', a=0.1, mode='fan_in', nonlinearity='leaky_relu', distribution='uniform', layer='Conv2d'),
    dict(type='Caffe2Xavier', layer=['Conv2d', 'Conv1d']),
    dict(type='Caffe2Xavier', bias=0.5, layer='Linear'),
    [dict(type='Kaiming', layer='Conv2d'), dict(type='Constant', val=1, layer=['_BatchNorm', 'GroupNorm'])],
    dict(
        type='Normal',
        std=0.02,
        layer='Conv2d',
        override=dict(type='Normal', name='head', std=0.01, bias_prob=0.01),
    ),
    dict(
        type='Uniform',
        layer='Conv2d',
        override=[dict(type='Xavier', name='head'), dict(type='Constant', name='tail', val=0.125, bias=3)],
    ),
    dict(type='Constant', val=7, layer='Module'),
    dict(type='Constant', val=7),
]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Conv2d(3, 4, 1, bias=False))
        self.head = nn.Linear(5, 3)
        self.tail = nn.Conv1d(2, 2, 3)


def record(initialize, case):
    """The parameters of a network made and initialised from seed 0."""
    torch.manual_seed(0)
    net = Net()
    initialize(net, case)
    return {name: [*p.flatten()[:4].tolist(), p.double().sum().item()] for name, p in net.named_parameters()}


if __name__ == '__main__':
    sys.modules['torchvision'] = types.ModuleType('torchvision')  # mmcv imports it and uses nothing of it here
    from mmcv.cnn.utils.weight_init import initialize

    table = [dict(init_cfg=case, expected=record(initialize, case)) for case in CASES]
    pathlib.Path(sys.argv[1]).write_text(json.dumps(table, indent=1) + '\n')
