"""Telling wrappers from models."""

import pytest
import torch
from torch import nn

from runnerkit.parallel import MODULE_WRAPPERS, forward_is_collective, is_module_wrapper, unwrap
from runnerkit.registry import Registry


def test_torchs_own_wrappers_are_known():
    net = nn.Linear(1, 1)
    assert is_module_wrapper(nn.DataParallel(net))
    assert not is_module_wrapper(net)
    assert unwrap(nn.DataParallel(nn.DataParallel(net))) is net
    assert unwrap(net) is net


def test_a_compiled_model_is_wrapped():
    net = nn.Linear(1, 1)
    assert unwrap(torch.compile(net)) is net
    assert unwrap(nn.DataParallel(torch.compile(nn.DataParallel(net)))) is net
    assert not is_module_wrapper(torch.compile(net))


def test_a_wrapper_says_whether_its_forward_pass_is_a_collective():
    class Sharded(nn.Module):
        forward_is_collective = True

    net = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    assert not forward_is_collective(net)
    assert not forward_is_collective(nn.DataParallel(net))
    assert forward_is_collective(nn.DataParallel(nn.Sequential(net, Sharded())))
    assert not forward_is_collective(torch.compile(net))


class Own(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module


@pytest.fixture
def registered():
    yield
    for registry in (MODULE_WRAPPERS, *MODULE_WRAPPERS.children.values()):
        registry.module_dict.pop('Own', None)
    MODULE_WRAPPERS.children.pop('downstream', None)


def test_registered_ones_are_known_also_in_registries_below(registered):
    wrapped = Own(nn.Linear(1, 1))
    assert not is_module_wrapper(wrapped)
    MODULE_WRAPPERS.register_module(module=Own)
    assert unwrap(wrapped) is wrapped.module
    MODULE_WRAPPERS.module_dict.pop('Own')
    assert not is_module_wrapper(wrapped)
    Registry('wrapper', parent=MODULE_WRAPPERS, scope='downstream').register_module(module=Own)
    assert is_module_wrapper(wrapped)
