"""Record the parameter groups that the real MMCV 1.x builds, as reference data for the tests.

Run it with the Python of a virtual environment with mmcv 1.7.2 (no compiled ops are needed):

    python benchmarks/golden_groups.py tests/data

It writes ``optimizer_groups.json``: a list of ``{'paramwise_cfg': ..., 'groups': [[names, lr, weight_decay], ...]}``.
"""

import copy
import json
import pathlib
import sys
import types

import torch
from torch import nn

OPTIMIZER = dict(type='SGD', lr=0.02, weight_decay=0.0003, momentum=0.9)
CONFIGS = [
    None,
    {},
    dict(bias_lr_mult=2.0),
    dict(bias_decay_mult=0.0),
    dict(norm_decay_mult=0.5),
    dict(dwconv_decay_mult=0.1),
    dict(bias_lr_mult=2.0, bias_decay_mult=0.3, norm_decay_mult=0.5, dwconv_decay_mult=0.1, dcn_offset_lr_mult=0.7),
    dict(bypass_duplicate=False, norm_decay_mult=0.0),
    dict(custom_keys=dict(backbone=dict(lr_mult=0.1))),
    dict(custom_keys={'backbone': dict(lr_mult=0.1), 'backbone.norm': dict(decay_mult=0.0), 'head': dict(lr_mult=10)}),
    dict(
        custom_keys={'conv': dict(lr_mult=0.3), 'norm': dict(decay_mult=0.2), 'head': dict(lr_mult=0.6)},
        bias_lr_mult=3.0,
    ),
    dict(custom_keys={'.bias': dict(lr_mult=0.5, decay_mult=0.5), 'scale': dict(decay_mult=0.0)}, norm_decay_mult=0.25),
    dict(custom_keys={'nothing of this name': dict(lr_mult=0.5)}, bias_decay_mult=0.0),
]


class Model(nn.Module):
    """Every kind of layer that has a rule, parameters outside of layers, frozen ones, and nested modules."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))
        self.backbone = nn.Sequential()
        self.backbone.add_module('conv', nn.Conv2d(4, 8, 3))
        self.backbone.add_module('norm', nn.BatchNorm2d(8))
        self.backbone.add_module('depthwise', nn.Conv2d(8, 8, 3, groups=8))
        self.backbone.add_module('single', nn.Conv2d(1, 8, 3))
        self.backbone.add_module('frozen', nn.Linear(2, 2).requires_grad_(False))
        self.neck = nn.ModuleDict(
            dict(
                gn=nn.GroupNorm(2, 4),
                ln=nn.LayerNorm(4),
                inorm=nn.InstanceNorm2d(4, affine=True),
                conv1d=nn.Conv1d(4, 4, 3, groups=4),
            )
        )
        self.head = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2, bias=False), nn.Embedding(3, 2))


def describe(optimizer, model):
    """Names, learning rate and weight decay of each group."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [
        [[names[id(parameter)] for parameter in group['params']], group['lr'], group['weight_decay']]
        for group in optimizer.param_groups
    ]


def main(out_dir):
    """Write the file into ``out_dir``."""
    sys.modules.setdefault('torchvision', types.ModuleType('torchvision'))
    from mmcv.runner import build_optimizer

    table = []
    for paramwise_cfg in CONFIGS:
        model = Model()
        optimizer = build_optimizer(model, copy.deepcopy(dict(OPTIMIZER, paramwise_cfg=paramwise_cfg)))
        table.append(dict(paramwise_cfg=paramwise_cfg, groups=describe(optimizer, model)))
    file = pathlib.Path(out_dir) / 'optimizer_groups.json'
    file.write_text('[\n' + ',\n'.join(json.dumps(row) for row in table) + '\n]\n')
    print(f'{file}: {len(table)} configurations')


if __name__ == '__main__':
    main(sys.argv[1])
