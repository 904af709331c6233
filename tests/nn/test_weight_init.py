import copy
import json
import logging
import math
import runpy
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from torch import nn

from runnerkit.nn import (
    INITIALIZERS,
    BaseModule,
    bias_init_with_prob,
    caffe2_xavier_init,
    constant_init,
    initialize,
    kaiming_init,
    normal_init,
    trunc_normal_init,
    uniform_init,
    update_init_info,
    xavier_init,
)

HERE = Path(__file__).parent
GOLDEN = json.loads((HERE / 'golden_weight_init.json').read_text())
RECORDER = runpy.run_path(str(HERE / 'golden_weight_init.py'))
record, Net = RECORDER['record'], RECORDER['Net']


@pytest.mark.parametrize('case', GOLDEN, ids=lambda case: str(case['init_cfg'])[:60])
def test_numbers_are_those_of_mmcv_for_the_same_seed(case):
    before = copy.deepcopy(case['init_cfg'])
    found = record(initialize, case['init_cfg'])
    assert case['init_cfg'] == before
    for name, numbers in case['expected'].items():
        assert found[name] == pytest.approx(numbers, rel=1e-5, abs=1e-6), name


def test_the_recorded_cases_are_those_of_the_script():
    assert [case['init_cfg'] for case in GOLDEN] == json.loads(json.dumps(RECORDER['CASES']))
    assert {part['type'] for case in RECORDER['CASES'] for part in ([case] if isinstance(case, dict) else case)} == {
        *INITIALIZERS.names()
    } - {'Pretrained'}


@pytest.mark.parametrize('layer', [nn.Linear(64, 64), nn.Linear(64, 64, bias=False), nn.ReLU()], ids=str)
@pytest.mark.parametrize(
    ('function', 'std'),
    [
        (lambda m: constant_init(m, 0.5, bias=2), 0),
        (lambda m: xavier_init(m, gain=2, bias=2), 2 / 8),
        (lambda m: xavier_init(m, gain=2, bias=2, distribution='uniform'), 2 / 8),
        (lambda m: normal_init(m, 1, 0.1, bias=2), 0.1),
        (lambda m: trunc_normal_init(m, 1, 0.1, 0, 2, bias=2), 0.1),
        (lambda m: uniform_init(m, -1, 1, bias=2), 1 / math.sqrt(3)),
        (lambda m: kaiming_init(m, bias=2), math.sqrt(2) / 8),
        (lambda m: kaiming_init(m, bias=2, distribution='uniform'), math.sqrt(2) / 8),
        (lambda m: caffe2_xavier_init(m, bias=2), 1 / 8),
    ],
)
def test_functions_fill_what_a_layer_has(layer, function, std):
    torch.manual_seed(0)
    layer = copy.deepcopy(layer)
    function(layer)
    if hasattr(layer, 'weight'):
        assert layer.weight.std().item() == pytest.approx(std, rel=0.05)
    if getattr(layer, 'bias', None) is not None:
        assert torch.equal(layer.bias, torch.full((64,), 2.0))


def test_bias_for_a_probability():
    assert torch.sigmoid(torch.tensor(bias_init_with_prob(0.01))).item() == pytest.approx(0.01)
    with pytest.raises(ValueError, match=r'between 0 and 1.*got 1'):
        bias_init_with_prob(1)


@pytest.mark.parametrize(
    ('cfg', 'error', 'message'),
    [
        (3, TypeError, 'init_cfg must be a dict or a list of dict, but got'),
        ([3], TypeError, 'init_cfg must be a dict or a list of dict'),
        ({'type': 'Constnt', 'val': 1}, KeyError, r"Constnt is not in the initializer registry.*'Constant'"),
        ({'layer': 'Linear'}, KeyError, 'must contain the key "type"'),
        ({'type': 'Constant', 'val': 1, 'bais': 3}, TypeError, "ConstantInit: .*'bais'"),
        ({'type': 'Constant', 'val': 1, 'bias': 'a'}, TypeError, 'bias must be a number'),
        ({'type': 'Constant', 'val': 1, 'bias_prob': '1'}, TypeError, 'bias_prob type must be float'),
        ({'type': 'Constant', 'val': 1, 'layer': 3}, TypeError, 'layer must be a str or a list of str'),
        ({'type': 'Constant', 'val': 1, 'layer': [3]}, TypeError, 'layer must be a str or a list of str'),
        (
            {'type': 'Constant', 'val': 1, 'layer': 'Conv2D'},
            ValueError,
            "'Conv2D'.*is not a layer; did you mean 'Conv2d'",
        ),
        ({'type': 'Xavier', 'layer': 'Linear', 'distribution': 'gauss'}, AssertionError, "'normal'.*'gauss'"),
        ({'type': 'Normal', 'override': 3}, TypeError, 'override must be a dict or a list of dict'),
        ({'type': 'Normal', 'override': {'std': 1}}, ValueError, '`override` must contain the key "name"'),
        ({'type': 'Normal', 'override': {'name': 'head', 'std': 1}}, ValueError, 'need "type" key.*type=\'Normal\''),
        ({'type': 'Normal', 'override': {'name': 'haed'}}, RuntimeError, "did not have attribute haed.*mean 'head'"),
        ({'type': 'Normal', 'override': {'name': 'qq'}}, RuntimeError, r"did not have attribute qq: .*'qq'}$"),
    ],
    ids=str,
)
def test_errors(cfg, error, message):
    with pytest.raises(error, match=message):
        initialize(Net(), cfg)


@pytest.mark.parametrize(
    ('cfg', 'message'),
    [
        ({'type': 'Normal'}, 'initialises nothing'),
        ({'type': 'Normal', 'layer': ['Linear', 'Convv2d']}, "no layer 'Convv2d'; did you mean 'Conv2d'"),
        ({'type': 'Normal', 'layer': ['Linear', 'qqqq']}, "has no layer 'qqqq'\n"),
    ],
)
def test_settings_without_effect_are_warned_about(cfg, message, caplog):
    with caplog.at_level(logging.WARNING, 'runnerkit'):
        initialize(Net(), cfg)
    assert message in caplog.text


def test_initialisers_of_ones_own():
    @INITIALIZERS.register_module(name='Sevens')
    class Sevens:
        def __call__(self, module):
            for parameter in module.parameters():
                nn.init.constant_(parameter, 7)

    try:
        net = Net()
        initialize(net, [{'type': 'Sevens'}, {'type': 'Constant', 'val': 1, 'layer': 'Linear'}])
    finally:
        del INITIALIZERS.module_dict['Sevens']
    assert net.tail.weight.unique().tolist() == [7]
    assert net.head.weight.unique().tolist() == [1]


def test_pretrained_whole_and_by_prefix(tmp_path, caplog):
    source = Net()
    path = str(tmp_path / 'source.pth')
    torch.save({'state_dict': source.state_dict()}, path)

    whole = Net()
    initialize(whole, {'type': 'Pretrained', 'checkpoint': path})
    assert all(map(torch.equal, whole.state_dict().values(), source.state_dict().values()))

    head = nn.Linear(5, 3)
    initialize(head, {'type': 'Pretrained', 'checkpoint': path, 'prefix': 'head.'})
    assert torch.equal(head.weight, source.head.weight)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]

    with pytest.raises(FileNotFoundError):
        initialize(head, {'type': 'Pretrained', 'checkpoint': str(tmp_path / 'missing.pth')})


def test_pretrained_weights_of_a_part_come_last_and_leave_the_rest(tmp_path):
    source, path = Net(), str(tmp_path / 'source.pth')
    torch.save({'state_dict': {f'model.{name}': value for name, value in source.state_dict().items()}}, path)

    class Child(BaseModule):
        def __init__(self):
            super().__init__({'type': 'Constant', 'val': 3, 'layer': 'Linear'})
            self.head, self.other = nn.Linear(5, 3), nn.Linear(1, 1)

    class Whole(BaseModule):
        def __init__(self, init_cfg):
            super().__init__(init_cfg)
            self.child, self.own = Child(), nn.Linear(1, 1)

    part = {'type': 'Pretrained', 'checkpoint': path, 'prefix': 'model.head.', 'part': 'child.head'}
    for init_cfg in (part, [part, {'type': 'Constant', 'val': 7, 'layer': 'Linear'}]):
        whole = Whole(init_cfg)
        whole.init_weights()
        assert torch.equal(whole.child.head.weight, source.head.weight)
        assert whole.child.other.weight.item() == 3
        assert (whole.own.weight.item() == 7) is (init_cfg is not part)


def test_a_wrong_prefix_or_part_is_named_with_the_right_one(tmp_path):
    path = str(tmp_path / 'source.pth')
    state = {'model.head.weight': torch.zeros(3, 5), 'model.body.0.weight': torch.zeros(2, 2)}
    torch.save({'state_dict': state}, path)
    for options, words in (
        (
            {'prefix': 'head.'},
            "is not in the pretrained model .*source.pth; it has model; did you mean 'model.head.'",
        ),
        ({'prefix': 'model.haed.'}, "did you mean 'model.head.'"),
        (
            {'prefix': 'model.'},
            r"not one of the weights below 'model.' in .* \(head.weight, body.0.weight\) fits",
        ),
        ({'prefix': 'model.head.', 'part': 'haed'}, "part='haed': Linear has no submodule 'haed'; its children: none"),
    ):
        with pytest.raises(ValueError, match=words):
            initialize(nn.Linear(5, 3), {'type': 'Pretrained', 'checkpoint': path, **options})
    with pytest.raises(ValueError, match="part='boddy': ModuleDict has no submodule 'boddy'; did you mean 'body'"):
        initialize(
            nn.ModuleDict({'body': nn.Linear(1, 1)}), {'type': 'Pretrained', 'checkpoint': path, 'part': 'boddy'}
        )


def test_pretrained_of_a_part_that_differs_is_logged(tmp_path, caplog):
    path = str(tmp_path / 'source.pth')
    torch.save(Net().state_dict(), path)
    net = Net()
    net.extra = nn.Linear(2, 2)
    initialize(net, {'type': 'Pretrained', 'checkpoint': path})
    assert 'extra.weight' in caplog.text


def test_modules_without_values_yet_do_not_disturb_the_notes():
    class Lazy(BaseModule):
        def __init__(self):
            super().__init__({'type': 'Constant', 'val': 1, 'layer': 'Conv1d'})
            self.lazy, self.ready = nn.LazyLinear(3), nn.Conv1d(2, 2, 1)
            self.meta = nn.Linear(2, 2, device='meta')

    module = Lazy()
    module.init_weights()
    assert module.is_init
    assert module.ready.weight.unique().tolist() == [1]


def test_a_parameter_of_which_no_notes_are_kept_is_refused():
    layer = nn.Linear(2, 2)
    layer._params_init_info = defaultdict(dict)
    for parameter in layer.parameters():
        layer._params_init_info[parameter].update(init_info='', tmp_mean_value=None)
    update_init_info(layer, 'noted')
    assert layer._params_init_info[layer.bias]['init_info'] == 'noted'
    layer.bias = nn.Parameter(torch.ones(2))
    for error in (KeyError, AssertionError):
        with pytest.raises(error, match="Linear has a parameter 'bias' that its _params_init_info does not list"):
            update_init_info(layer, 'noted')
