"""Batches for accelerators, with torch's own `meta` device standing in for one."""

from collections import namedtuple

import pytest
import torch

from runnerkit.compat.mmcv.device import scatter, scatter_gather, scatter_kwargs
from runnerkit.parallel import DataContainer

Pair = namedtuple('Pair', 'a b')


def test_everything_nested_is_brought_there():
    data = {'a': torch.ones(2), 'b': [DataContainer([torch.ones(1)])], 'c': Pair(1, torch.ones(1)), 'd': (2, [])}
    (share,) = scatter(data, ['meta'])
    assert (share['a'].device.type, share['b'][0].device.type, share['c'].b.device.type) == ('meta',) * 3
    assert (share['c'].a, share['d']) == (1, (2, []))
    assert data['a'].device.type == 'cpu'


def test_containers_are_unpacked_and_some_stay_on_the_cpu():
    metas = DataContainer([[{'name': 'x'}], [{'name': 'y'}]], cpu_only=True)
    images = DataContainer([torch.zeros(1), torch.ones(1)])
    first, second = scatter({'metas': metas, 'images': images}, ['cpu', 'cpu'])
    assert (first['metas'], second['metas']) == ([{'name': 'x'}], [{'name': 'y'}])
    assert (first['images'].item(), second['images'].item()) == (0, 1)
    (kept,) = scatter(DataContainer([[torch.ones(1)]], cpu_only=True), ['meta'])
    assert kept[0].device.type == 'cpu'


@pytest.mark.parametrize('nothing', [[], {}, (), None, 'text', 5])
def test_what_has_no_tensors(nothing):
    assert scatter(nothing, ['cpu']) == [nothing]


def test_numbers_are_of_this_machines_kind(monkeypatch):
    assert scatter(torch.ones(1), [0])[0].device == torch.device('cpu' if scatter_gather.get_device() == 'cpu' else 0)
    monkeypatch.setattr(scatter_gather, 'get_device', lambda: 'meta')
    assert scatter(torch.ones(1), [1])[0].device.type == 'meta'
    assert scatter_gather.device_of(1) == torch.device('meta', 1)
    assert scatter(torch.ones(1), [-1])[0].device.type == 'cpu'


def test_arguments_of_a_call():
    assert scatter_kwargs((1,), {}, ['cpu']) == (((1,),), ({},))
    assert scatter_kwargs((), {'a': 1}, ['cpu']) == (((),), ({'a': 1},))
    assert scatter_kwargs((), {}, ['cpu']) == ((), ())
