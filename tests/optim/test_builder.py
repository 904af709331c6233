import copy

import pytest
import torch
from torch import nn

from runnerkit.optim import (
    OPTIMIZER_BUILDERS,
    OPTIMIZERS,
    TORCH_OPTIMIZERS,
    DefaultOptimizerConstructor,
    build_optimizer,
    build_optimizer_constructor,
)


@pytest.fixture
def registries():
    """Give the registries back as they were."""
    kept = [(registry, dict(registry.module_dict)) for registry in (OPTIMIZERS, OPTIMIZER_BUILDERS)]
    yield
    for registry, content in kept:
        registry.module_dict.clear()
        registry.module_dict.update(content)


def test_every_torch_optimizer_is_known_by_name():
    assert {'SGD', 'Adam', 'AdamW', 'RMSprop', 'LBFGS', 'Optimizer'} <= set(TORCH_OPTIMIZERS)
    assert all(OPTIMIZERS.get(name) is getattr(torch.optim, name) for name in TORCH_OPTIMIZERS)
    assert set(TORCH_OPTIMIZERS) <= set(OPTIMIZERS.names())


@pytest.mark.parametrize('name', sorted({*TORCH_OPTIMIZERS} - {'Muon', 'Optimizer'}))
def test_every_torch_optimizer_builds(name):
    optimizer = build_optimizer(nn.Linear(1, 1), dict(type=name, lr=0.5))
    assert type(optimizer) is getattr(torch.optim, name)
    assert optimizer.param_groups[0]['lr'] == 0.5


def test_one_group_without_paramwise_cfg():
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1).requires_grad_(False))
    optimizer = build_optimizer(model, dict(type='SGD', lr=0.1))
    assert len(optimizer.param_groups) == 1
    assert len(optimizer.param_groups[0]['params']) == 4


def test_config_is_not_changed():
    cfg = dict(type='SGD', lr=0.1, weight_decay=0.1, constructor='DefaultOptimizerConstructor')
    cfg['paramwise_cfg'] = dict(custom_keys=dict(a=dict(lr_mult=0.5)))
    before = copy.deepcopy(cfg)
    build_optimizer(nn.Linear(1, 1), cfg)
    assert cfg == before


@pytest.mark.usefixtures('registries')
def test_own_optimizer_and_constructor():
    @OPTIMIZERS.register_module()
    class Slow(torch.optim.SGD):
        pass

    @OPTIMIZER_BUILDERS.register_module()
    class BiasOnly:
        def __init__(self, optimizer_cfg, paramwise_cfg=None):
            self.cfg = optimizer_cfg

        def __call__(self, model):
            return OPTIMIZERS.build(self.cfg, default_args=dict(params=[model.bias]))

    model = nn.Linear(1, 1)
    optimizer = build_optimizer(model, dict(type='Slow', lr=0.1, constructor='BiasOnly'))
    assert type(optimizer) is Slow
    assert optimizer.param_groups[0]['params'] == [model.bias]


def test_constructor_by_name():
    cfg = dict(type='DefaultOptimizerConstructor', optimizer_cfg=dict(type='SGD', lr=0.1))
    assert type(build_optimizer_constructor(cfg)) is DefaultOptimizerConstructor


def test_dict_of_optimizers():
    model = nn.ModuleDict(dict(G=nn.Linear(1, 1), D=nn.ModuleDict(dict(body=nn.Linear(2, 2), head=nn.Linear(2, 1)))))
    wrapper = nn.Module()
    wrapper.module = model
    cfg = dict(G=dict(type='Adam', lr=0.1), D=dict(type='SGD', lr=0.2, paramwise_cfg=dict(bias_lr_mult=2.0)))
    cfg['D.head'] = dict(type='SGD', lr=0.3)
    before = copy.deepcopy(cfg)
    optimizers = build_optimizer(wrapper, cfg)
    assert list(optimizers) == ['G', 'D', 'D.head']
    assert optimizers['G'].param_groups[0]['params'] == list(model['G'].parameters())
    assert [group['lr'] for group in optimizers['D'].param_groups] == [0.2, 0.4, 0.2, 0.4]
    assert optimizers['D.head'].param_groups[0]['params'] == list(model['D']['head'].parameters())
    assert cfg == before


def test_dict_of_optimizers_for_parts_that_are_not_there():
    model = nn.ModuleDict(dict(generator=nn.Linear(1, 1)))
    with pytest.raises(ValueError, match="no submodule of that name; did you mean 'generator'"):
        build_optimizer(model, dict(generater=dict(type='SGD', lr=0.1)))
    with pytest.raises(ValueError, match=r'no submodule of that name\. Its children: generator\.$'):
        build_optimizer(model, dict(qq=dict(type='SGD', lr=0.1)))
    with pytest.raises(ValueError, match=r'Linear has no submodule of that name\. Its children: none\.$'):
        build_optimizer(nn.Linear(1, 1), dict(qq=dict(type='SGD', lr=0.1)))
    with pytest.raises(ValueError, match="an optimizer for ''"):
        build_optimizer(model, {'': dict(type='SGD', lr=0.1)})


@pytest.mark.parametrize(
    ('cfg', 'error', 'message'),
    [
        ('SGD', TypeError, "given as a dict such as dict\\(type='SGD', lr=0.1\\), got 'SGD'"),
        ({}, KeyError, 'type'),
        (dict(lr=0.1), KeyError, 'type'),
        (dict(type='SGDD', lr=0.1), KeyError, "SGDD is not in the optimizer registry.*did you mean 'SGD'"),
        (dict(type='SGD', lr=0.1, constructor='Foo'), KeyError, 'Foo is not in the optimizer builder registry'),
        (dict(type='SGD', lrate=0.1), TypeError, "SGD: .*'lrate'"),
        (dict(type='SGD', lr=-1.0), ValueError, 'SGD: Invalid learning rate'),
    ],
)
def test_wrong_configs(cfg, error, message):
    with pytest.raises(error, match=message):
        build_optimizer(nn.Linear(1, 1), cfg)
