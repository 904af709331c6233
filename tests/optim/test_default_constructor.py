import copy
import json

import pytest
import torch
from support import ROOT, benchmark
from torch import nn

from runnerkit.optim import OPTIMIZERS, DefaultOptimizerConstructor, build_optimizer

golden = benchmark('golden_groups')
TABLE = json.loads((ROOT / 'tests/data/optimizer_groups.json').read_text())


@pytest.mark.parametrize('row', TABLE, ids=[str(row['paramwise_cfg']) for row in TABLE])
def test_groups_equal_those_of_mmcv(row):
    model = golden.Model()
    cfg = dict(golden.OPTIMIZER, paramwise_cfg=row['paramwise_cfg'])
    before = copy.deepcopy(cfg)
    optimizer = build_optimizer(model, cfg)
    assert golden.describe(optimizer, model) == row['groups']
    assert cfg == before


def build(model, paramwise_cfg, **optimizer):
    cfg = dict(dict(type='SGD', lr=0.1, weight_decay=0.01), **optimizer)
    return DefaultOptimizerConstructor(cfg, paramwise_cfg)(model)


def groups_by_name(model, optimizer):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(p)]: group for group in optimizer.param_groups for p in group['params']}


def test_a_wrapped_model_is_looked_into():
    model = nn.Linear(2, 2)
    wrapper = nn.Module()
    wrapper.module = model
    groups = groups_by_name(model, build(wrapper, dict(custom_keys={'module': dict(lr_mult=0)}, bias_lr_mult=2.0)))
    assert groups['weight']['lr'] == 0.1
    assert groups['bias']['lr'] == 0.2


class DeformConv2d(nn.Module):
    """Stands for the class of that name that compiled libraries have."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.conv_offset = nn.Conv2d(2, 2, 1)
        self.other = nn.Linear(2, 2)


class DeformConv2dPack(DeformConv2d):
    pass


@pytest.mark.parametrize('kind', [DeformConv2d, DeformConv2dPack])
def test_offsets_of_deformable_convolutions(kind):
    model = nn.Module()
    model.dcn = kind()
    model.conv_offset = nn.Conv2d(2, 2, 1)
    paramwise_cfg = dict(dcn_offset_lr_mult=0.1, bias_lr_mult=2.0, bias_decay_mult=0.0)
    groups = groups_by_name(model, build(model, paramwise_cfg))
    lr = {name: pytest.approx(group['lr']) for name, group in groups.items()}
    assert lr == {
        'dcn.weight': 0.1,
        'dcn.conv_offset.weight': 0.01,
        'dcn.conv_offset.bias': 0.01,
        'dcn.other.weight': 0.1,
        'dcn.other.bias': 0.1,
        'conv_offset.weight': 0.1,
        'conv_offset.bias': 0.2,
    }
    assert groups['dcn.conv_offset.bias']['weight_decay'] == 0.01
    assert groups['conv_offset.bias']['weight_decay'] == 0


def shared():
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    model[1].weight = model[0].weight
    return model


def test_duplicates_are_an_error_unless_bypassed():
    with pytest.raises(ValueError, match=r'0\.weight = 1\.weight is one parameter .* bypass_duplicate=True'):
        build(shared(), dict(bias_lr_mult=1.0))
    with pytest.warns(UserWarning, match=r'^1 is duplicate\. It is skipped since bypass_duplicate=True$'):
        optimizer = build(shared(), dict(bypass_duplicate=True))
    assert len(optimizer.param_groups) == 1
    frozen = shared().requires_grad_(False)
    with pytest.raises(ValueError, match=r'0\.weight = 1\.weight is one parameter'):
        build(frozen, dict(bias_lr_mult=1.0))
    with pytest.warns(UserWarning, match=r'^1 is duplicate\.'):
        assert len(build(frozen, dict(bypass_duplicate=True)).param_groups) == 1


@pytest.mark.parametrize(
    ('paramwise_cfg', 'optimizer', 'error', 'message'),
    [
        (3, {}, TypeError, 'paramwise_cfg should be None or a dict'),
        (dict(custom_keys=[1]), {}, TypeError, 'custom_keys must be a dict'),
        (dict(custom_keys=dict(a=1)), {}, TypeError, r"custom_keys\['a'\] should be a dict"),
        (dict(custom_keys=dict(a=dict(lr_mul=1))), {}, ValueError, "has no 'lr_mul'; did you mean 'lr_mult'"),
        (dict(bias_lr_mul=1), {}, ValueError, "paramwise_cfg has no 'bias_lr_mul'; did you mean 'bias_lr_mult'"),
        (dict(qq=1), {}, ValueError, r"paramwise_cfg has no 'qq'\. It takes: custom_keys, .*bypass_duplicate\.$"),
        (
            dict(norm_decay_mult=0),
            dict(weight_decay=None),
            ValueError,
            'norm_decay_mult multiplies weight_decay, but the config of SGD',
        ),
        (dict(custom_keys=dict(a=dict(decay_mult=0))), dict(weight_decay=None), ValueError, 'decay_mult multiplies'),
        (dict(bias_lr_mult=0), dict(lr=None), ValueError, 'bias_lr_mult multiplies lr, but the config'),
    ],
)
def test_wrong_settings(paramwise_cfg, optimizer, error, message):
    with pytest.raises(error, match=message):
        build(nn.Linear(1, 1), paramwise_cfg, **optimizer)


def test_optimizer_cfg_that_is_no_dict():
    with pytest.raises(TypeError, match='optimizer_cfg should be a dict'):
        DefaultOptimizerConstructor('SGD')


def test_subclass_brings_its_own_keys_and_uses_the_documented_attributes():
    class LayerDecay(DefaultOptimizerConstructor):
        def add_params(self, params, module, **kwargs):
            for depth, parameter in enumerate(module.parameters()):
                lr = self.base_lr * self.paramwise_cfg['decay_rate'] ** depth
                params.append(dict(params=[parameter], lr=lr, weight_decay=self.base_wd))

    cfg = dict(type='AdamW', lr=1.0, weight_decay=0.05)
    optimizer = LayerDecay(cfg, dict(decay_rate=0.5, num_layers=2))(nn.Linear(1, 1))
    assert [group['lr'] for group in optimizer.param_groups] == [1.0, 0.5]
    assert optimizer.__class__ is OPTIMIZERS.get('AdamW')
