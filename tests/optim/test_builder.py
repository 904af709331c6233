import copy
import re

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
    before = copy.deepcopy(cfg)
    optimizers = build_optimizer(wrapper, cfg)
    assert list(optimizers) == ['G', 'D']
    assert optimizers['G'].param_groups[0]['params'] == list(model['G'].parameters())
    assert [group['lr'] for group in optimizers['D'].param_groups] == [0.2, 0.4, 0.2, 0.4]
    assert cfg == before
    nested = build_optimizer(wrapper, {'G': dict(type='Adam'), 'D.head': dict(type='SGD', lr=0.3)})
    assert nested['D.head'].param_groups[0]['params'] == list(model['D']['head'].parameters())


class Pair(nn.Module):
    """Two networks with a shared layer, and one layer of neither."""

    def __init__(self):
        super().__init__()
        shared = nn.Linear(3, 3, bias=False)
        self.left = nn.ModuleDict(dict(own=nn.Linear(2, 3), shared=shared))
        self.right = nn.ModuleDict(dict(own=nn.Linear(2, 3), shared=shared, norm=nn.BatchNorm1d(3)))
        self.rest = nn.Linear(1, 1)


def held(optimizer, model):
    """The names of the parameters of each group."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [[names[id(parameter)] for parameter in group['params']] for group in optimizer.param_groups]


def test_optimizers_by_patterns_over_names():
    model = Pair()
    cfg = dict(
        a=dict(type='SGD', lr=0.1, params=['left.*', 'rest.weight']), right=dict(type='Adam', params='*right.[on]*')
    )
    before = copy.deepcopy(cfg)
    optimizers = build_optimizer(model, cfg)
    assert held(optimizers['a'], model) == [['left.own.weight', 'left.own.bias', 'left.shared.weight', 'rest.weight']]
    assert held(optimizers['right'], model) == [
        ['right.own.weight', 'right.own.bias', 'right.norm.weight', 'right.norm.bias']
    ]
    assert cfg == before


@pytest.mark.skipif(not hasattr(torch.optim, 'Muon'), reason='this torch has no optimizer that refuses some parameters')
def test_an_optimizer_gets_no_parameters_but_those_of_its_patterns():
    model = Pair()
    optimizer = build_optimizer(model, dict(type='Muon', lr=0.1, params=['left.own.weight']))  # refuses other shapes
    assert held(optimizer, model) == [['left.own.weight']]


def test_a_shared_parameter_is_chosen_by_any_of_its_names():
    model = Pair()
    optimizer = build_optimizer(model, dict(type='SGD', lr=0.1, params=['right.shared.*']))
    assert optimizer.param_groups[0]['params'] == [model.left['shared'].weight]


def test_patterns_and_paramwise_cfg_together():
    model = Pair()
    paramwise_cfg = dict(norm_decay_mult=0.0, custom_keys={'right.own': dict(lr_mult=10)})
    cfg = dict(type='SGD', lr=0.1, weight_decay=0.5, params=['right.*'], paramwise_cfg=paramwise_cfg)
    optimizer = build_optimizer(model, dict(r=cfg))['r']
    found = [
        (names, group['lr'], group['weight_decay'])
        for names, group in zip(held(optimizer, model), optimizer.param_groups)
    ]
    assert found == [
        (['left.shared.weight'], 0.1, 0.5),
        (['right.own.weight'], 1.0, 0.5),
        (['right.own.bias'], 1.0, 0.5),
        (['right.norm.weight'], 0.1, 0.0),
        (['right.norm.bias'], 0.1, 0.0),
    ]


def test_a_parameter_in_two_optimizers_is_named():
    sgd = dict(type='SGD', lr=0.1)
    shared = 'left.shared.weight = right.shared.weight'
    for cfg, words in (
        (dict(left=sgd, right=sgd), f"the parameter {shared} is in two optimizers, 'left' and 'right'"),
        ({'left': sgd, 'left.own': sgd}, "left.own.weight is in two optimizers, 'left' and 'left.own'"),
        (
            dict(a=dict(sgd, params=['left.own.*', 'rest.*']), rest=sgd),
            "rest.weight is in two optimizers, 'a' and 'rest'",
        ),
        (dict(a=dict(sgd, params=['left.*']), b=dict(sgd, params=['*.shared.*'])), f'{shared} is in two'),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            build_optimizer(Pair(), cfg)


def test_patterns_that_are_wrong():
    for params, error, words in (
        (['left.*', 'rihgt.*'], ValueError, r"'rihgt\.\*' matches no parameter of Pair; did you mean 'right\.\*'"),
        ('left', ValueError, r"did you mean 'left\.\*'"),
        ('qqqq', ValueError, 'they are called left.own.weight, left.own.bias'),
        ([], TypeError, r'params must be names or patterns .* but got \[\]'),
        (3, TypeError, 'params must be names or patterns .* but got 3'),
    ):
        with pytest.raises(error, match=words):
            build_optimizer(Pair(), dict(a=dict(type='SGD', lr=0.1, params=params)))


def test_dict_of_optimizers_for_parts_that_are_not_there():
    model = nn.ModuleDict(dict(generator=nn.Linear(1, 1)))
    with pytest.raises(ValueError, match="but ModuleDict has no submodule 'generater'; did you mean 'generator'"):
        build_optimizer(model, dict(generater=dict(type='SGD', lr=0.1)))
    with pytest.raises(ValueError, match="ModuleDict has no submodule 'qq'; its children: generator$"):
        build_optimizer(model, dict(qq=dict(type='SGD', lr=0.1)))
    with pytest.raises(ValueError, match="Linear has no submodule 'qq'; its children: none$"):
        build_optimizer(nn.Linear(1, 1), dict(qq=dict(type='SGD', lr=0.1)))
    with pytest.raises(ValueError, match="an optimizer for ''"):
        build_optimizer(model, {'': dict(type='SGD', lr=0.1)})


@pytest.mark.parametrize(
    ('cfg', 'error', 'message'),
    [
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
