"""Networks by family, descriptions, and the models of descriptions."""

import pytest
import torch
from torch import nn

from runnerkit.compat.vega.networks import (
    FAMILIES,
    NetTypes,
    Network,
    NetworkDesc,
    NetworkFactory,
    SearchSpace,
    build_network,
)
from runnerkit.config import Config
from runnerkit.nn import MODELS, Supervised, build_model


@NetworkFactory.register(NetTypes.BACKBONE)
class Tower(nn.Module):
    """A network in our way: its keys are arguments."""

    def __init__(self, widths, bias=True):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(a, b, bias=bias) for a, b in zip(widths, widths[1:], strict=False)))

    def forward(self, x):
        return self.layers(x)


@NetworkFactory.register(NetTypes.BACKBONE)
class PruneTower(Network):
    """A network in Vega's way: it takes the whole description."""

    def __init__(self, descript):
        super().__init__()
        self.descript = descript
        self.layer = nn.Linear(descript.base_chn[0], descript.get('num_classes', 10))

    def forward(self, x):
        return self.layer(x)


@NetworkFactory.register('head', name='Classifier')
class LinearHead(nn.Linear):
    """A head of another name."""

    def __init__(self, base_channel, num_classes):
        super().__init__(base_channel, num_classes)


def test_one_module_gives_that_network():
    desc = {'modules': ['backbone'], 'backbone': {'type': 'Tower', 'widths': [4, 8]}}
    model = NetworkDesc(desc).to_model()
    assert type(model) is Tower
    assert model.layers[0].out_features == 8
    assert desc == {'modules': ['backbone'], 'backbone': {'type': 'Tower', 'widths': [4, 8]}}


def test_several_give_a_sequence_in_their_order():
    desc = {
        'head': {'type': 'Classifier', 'base_channel': 8, 'num_classes': 3},
        'modules': ['backbone', 'activation', 'head'],
        'backbone': {'type': 'Tower', 'widths': [4, 8]},
        'activation': {'type': 'ReLU'},  # a module of no family: any model
    }
    model = NetworkDesc(desc).to_model()
    assert [name for name, _ in model.named_children()] == ['backbone', 'activation', 'head']
    assert [type(each) for each in model] == [Tower, nn.ReLU, LinearHead]
    assert model(torch.zeros(2, 4)).shape == (2, 3)


def test_a_network_in_vegas_way_gets_its_whole_description():
    text = """
search_space:
    type: SearchSpace
    modules: ['backbone']
    backbone:
        name: 'PruneTower'
        base_chn: [16,16,32]
        base_chn_node: [16,16,32,64]
        num_classes: 10
"""
    section = Config.fromstring(text, '.yaml').search_space
    space = SearchSpace(section)
    assert space.search_space == section
    model = NetworkDesc(space.describe()).to_model()
    assert type(model) is PruneTower
    assert model.descript == {'base_chn': [16, 16, 32], 'base_chn_node': [16, 16, 32, 64], 'num_classes': 10}
    assert section.backbone.name == 'PruneTower'
    assert NetworkFactory.get_network(NetTypes.BACKBONE, 'PruneTower') is PruneTower


def test_a_description_is_a_config_of_a_model():
    desc = {'modules': ['backbone'], 'backbone': {'type': 'PruneTower', 'base_chn': [4], 'num_classes': 3}}
    for kind in ('NetworkDesc', 'runnerkit.compat.vega.networks.build_network'):
        model = build_model({'type': 'Supervised', 'model': {'type': kind, **desc}, 'loss': {'type': 'MSELoss'}})
        assert isinstance(model, Supervised)
        assert type(model.model) is PruneTower
    assert type(build_network(**desc)) is PruneTower
    assert type(build_model({'type': 'backbone.PruneTower', 'base_chn': [4]})) is PruneTower
    assert type(build_model({'type': 'backbone.Tower', 'widths': [4, 8]})) is Tower
    assert type(NetworkDesc({'type': 'head.Classifier', 'base_channel': 2, 'num_classes': 3}).to_model()) is LinearHead


def test_families_have_their_own_names_and_know_all_models():
    assert MODELS.get('Tower') is None
    assert FAMILIES['head'].get('Tower') is None
    assert FAMILIES['head'].get('Linear') is nn.Linear
    assert NetworkFactory.get_network('block', 'torch.nn.ReLU') is nn.ReLU
    assert {each.value for each in NetTypes} == set(FAMILIES)


def test_values_are_put_into_a_description():
    section = {
        'modules': ['backbone'],
        'backbone': {'type': 'Tower', 'widths': [4, 8]},
        'hyperparameters': [],
    }
    space = SearchSpace(section)
    wide = space.describe({'network.backbone.widths': [4, 16], 'backbone.bias': False})
    assert wide == {'modules': ['backbone'], 'backbone': {'type': 'Tower', 'widths': [4, 16], 'bias': False}}
    assert space.describe()['backbone']['widths'] == [4, 8]


BACKBONE = {'type': 'Tower', 'widths': [4, 8]}


@pytest.mark.parametrize(
    'desc, error, told',
    [
        (3, TypeError, 'a description must be a dict, but got 3'),
        ({'modules': []}, ValueError, 'modules is empty: name at least one'),
        (
            {'modules': 'backbone'},
            TypeError,
            "modules must be a list of names, such as ['backbone', 'head'], but got 'b",
        ),
        ({'modules': ['backbon'], 'backbone': BACKBONE}, KeyError, "its module 'backbon'; did you mean 'backbone'?"),
        ({'modules': ['backbone'] * 2, 'backbone': BACKBONE}, ValueError, 'modules must have different names'),
        ({'modules': ['head'], 'head': 3}, TypeError, 'the module head must be a dict with a type, but got 3'),
        ({'modules': ['head'], 'head': BACKBONE}, KeyError, 'Tower is not in the head registry'),
        ({'modules': ['backbone'], 'backbone': {'type': 'Towr'}}, KeyError, "did you mean 'Tower'"),
        ({'modules': ['backbone'], 'backbone': {**BACKBONE, 'widhts': 3}}, TypeError, "did you mean 'widths'"),
        ({'modules': ['x'], 'x': {'type': 'json.dumps', 'obj': 3}}, TypeError, 'the module x gives a str, but a torch'),
    ],
)
def test_what_describes_no_network(desc, error, told):
    with pytest.raises(error) as caught:
        NetworkDesc(desc).to_model()
    assert told in caught.value.args[0]


def test_an_unknown_family_or_network():
    with pytest.raises(KeyError, match="there is no family 'backbon'; did you mean 'backbone'?"):
        NetworkFactory.register('backbon')
    with pytest.raises(KeyError, match="there is no backbone 'Towr'; did you mean 'Tower'"):
        NetworkFactory.get_network('backbone', 'Towr')
    with pytest.raises(TypeError, match='a search space must be a dict, but got 3'):
        SearchSpace(3)


def test_a_mistake_has_its_place(tmp_path):
    file = tmp_path / 'cfg.py'
    file.write_text("net = dict(\n    modules=['backbone'],\n    backbone=dict(\n        type='Towr'))")
    with pytest.raises(KeyError, match=r'Towr is not in the backbone registry \(.*cfg\.py:4\)'):
        NetworkDesc(Config.fromfile(file).net).to_model()
