import logging

import pytest
import torch
from torch import nn

from runnerkit.nn import BaseModule, ModuleDict, ModuleList, Sequential, update_init_info


def constant(value, **kwargs):
    return dict(type='Constant', val=value, layer='Linear', **kwargs)


class Child(BaseModule):
    def __init__(self, init_cfg=None):
        super().__init__(init_cfg)
        self.inner = nn.Linear(2, 2)


class OwnMethod(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def init_weights(self):
        nn.init.constant_(self.inner.weight, 11)


class Parent(BaseModule):
    def __init__(self, init_cfg=None):
        super().__init__(init_cfg)
        self.configured = Child(constant(3))
        self.silent = Child()
        self.plain = nn.Linear(2, 2)
        self.own = OwnMethod()


def values(linear):
    return linear.weight.unique().tolist()


@pytest.fixture
def log_file(tmp_path):
    handler = logging.FileHandler(tmp_path / 'run.log')
    logger = logging.getLogger('runnerkit')
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield tmp_path / 'run.log'
    logger.removeHandler(handler)
    logger.setLevel(level)
    handler.close()


def test_the_innermost_config_has_the_last_word():
    parent = Parent(constant(2))
    assert not parent.is_init
    parent.init_weights()
    assert values(parent.configured.inner) == [3]
    assert values(parent.silent.inner) == [2]
    assert values(parent.plain) == [2]
    assert values(parent.own.inner) == [11]
    assert parent.is_init
    assert parent.configured.is_init
    assert not any(hasattr(module, '_params_init_info') for module in parent.modules())


def test_a_second_call_warns_and_does_nothing():
    parent = Parent(constant(2))
    parent.init_weights()
    nn.init.constant_(parent.plain.weight, 5)
    with pytest.warns(UserWarning, match='init_weights of Parent has been called more than once'):
        parent.init_weights()
    assert values(parent.plain) == [5]


def test_pretrained_weights_are_not_initialised_again(tmp_path):
    source = Parent()
    path = str(tmp_path / 'parent.pth')
    torch.save(source.state_dict(), path)
    parent = Parent(dict(type='Pretrained', checkpoint=path))
    parent.init_weights()
    assert torch.equal(parent.configured.inner.weight, source.configured.inner.weight)
    assert parent.is_init
    assert not hasattr(parent, '_params_init_info')


def test_a_failed_initialisation_can_be_repeated():
    module = Child(constant(1, override=dict(name='missing')))
    with pytest.raises(RuntimeError, match='missing'):
        module.init_weights()
    assert not module.is_init
    assert not hasattr(module, '_params_init_info')
    module.init_cfg = constant(1)
    module.init_weights()
    assert values(module.inner) == [1]


def test_the_log_file_says_where_values_come_from(log_file, capsys):
    Parent(constant(2, bias=1)).init_weights()
    lines = log_file.read_text().splitlines()
    notes = dict(zip(lines[1::2], lines[2::2], strict=True))
    assert notes['configured.inner.weight - (2, 2):'] == 'ConstantInit: bias=0, val=3'
    assert notes['plain.bias - (2,):'] == 'ConstantInit: bias=1, val=2'
    assert notes['own.inner.weight - (2, 2):'] == 'Initialized by user-defined `init_weights` in OwnMethod'
    assert len(lines) == 17
    assert capsys.readouterr().err == ''


def test_the_log_file_names_what_nobody_initialised(log_file):
    Child().init_weights()
    assert 'inner.bias - (2,):\nThe value is the same before and after calling `init_weights` of Child' in (
        log_file.read_text()
    )


def test_parameters_may_be_replaced(log_file):
    class Replacing(Child):
        def init_weights(self):
            self.inner.weight = nn.Parameter(torch.ones(2, 2))

    class Later(Replacing):
        def init_weights(self):
            super().init_weights()
            self.extra = nn.Parameter(torch.zeros(1))

    Sequential(Replacing(), Sequential(Later())).init_weights()
    text = log_file.read_text()
    assert '0.inner.weight - (2, 2):\nInitialized by user-defined `init_weights` in Replacing' in text
    assert '1.0.extra - (1,):\nInitialized by user-defined `init_weights` in Later' in text

    class Outer(Child):
        def _init_self_and_children(self):
            self.own = nn.Parameter(torch.zeros(1))

    Outer().init_weights()
    assert 'own - (1,):\nA new parameter' in log_file.read_text()


def test_own_methods_can_add_to_the_notes(log_file):
    class Noting(Child):
        def init_weights(self):
            nn.init.constant_(self.inner.weight, 4)
            update_init_info(self, 'by hand')

    Sequential(Noting()).init_weights()
    assert '0.inner.weight - (2, 2):\nby hand' in log_file.read_text()


@pytest.mark.parametrize(
    ('make', 'first'),
    [
        (lambda part, cfg: Sequential(part, nn.ReLU(), init_cfg=cfg), 0),
        (lambda part, cfg: ModuleList([part], cfg), 0),
        (lambda part, cfg: ModuleDict({'a': part}, cfg), 'a'),
    ],
    ids=['Sequential', 'ModuleList', 'ModuleDict'],
)
def test_containers(make, first):
    container = make(nn.Linear(2, 2), constant(6))
    container.init_weights()
    assert values(container[first]) == [6]
    inner = make(Child(constant(8)), None)
    inner.init_weights()
    assert values(inner[first].inner) == [8]


def test_empty_containers_and_repr():
    assert len(ModuleList()) == len(ModuleDict()) == len(Sequential()) == 0
    assert repr(Child()).endswith(')')
    assert repr(Child(constant(1))).endswith(f'init_cfg={constant(1)}')
