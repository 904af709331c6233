"""Bringing nested batches to their devices."""

from collections import OrderedDict, defaultdict, namedtuple

import pytest
import torch

from runnerkit.parallel import DataContainer, scatter, scatter_kwargs, to_device

Pair = namedtuple('Pair', 'image label')


class Movable:
    device = 'cpu'

    def to(self, device):
        moved = Movable()
        moved.device = str(device)
        return moved


def test_every_kind_of_nesting_keeps_its_kind():
    x = torch.ones(2)
    data = {
        'pair': Pair(x, 'cat'),
        'list': [x, (x, 3)],
        'ordered': OrderedDict(b=x, a=None),
        'own': Movable(),
        'text': 'x',
    }
    moved = to_device(data, 'meta')
    assert moved['pair'].image.device.type == moved['list'][0].device.type == moved['list'][1][0].device.type == 'meta'
    assert type(moved['pair']) is Pair
    assert moved['pair'].label == 'cat'
    assert moved['list'][1][1] == 3
    assert type(moved['ordered']) is OrderedDict
    assert list(moved['ordered']) == ['b', 'a']
    assert moved['ordered']['b'].device.type == 'meta'
    assert moved['own'].device == 'meta'
    assert moved['text'] == 'x'
    assert data['list'][0] is x
    assert data['ordered']['b'] is x


def test_dicts_of_other_kinds_keep_what_makes_them_so():
    data = defaultdict(list, a=torch.ones(1))
    moved = to_device(data, torch.device('meta'))
    assert moved['new'] == []
    assert moved['a'].device.type == 'meta'
    assert 'new' not in data


def test_a_tensor_that_is_there_is_not_copied():
    x = torch.ones(2)
    assert to_device([x], 'cpu')[0] is x


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
def test_to_a_gpu_by_number():
    assert to_device(torch.ones(2).pin_memory(), 0).device == torch.device('cuda', 0)


X = torch.arange(4.0).view(2, 2)


def test_containers_are_unpacked_and_kinds_kept():
    batch = {
        'img': DataContainer([X], stack=True),
        'boxes': DataContainer([[X, X]]),
        'meta': DataContainer([['a', 'b']], cpu_only=True),
        'pair': Pair(X, 'cat'),
        'nested': [(DataContainer([X]), 3)],
        'empty': {},
    }
    (share,) = scatter(OrderedDict(batch), [-1])
    assert type(share) is OrderedDict
    assert list(share) == list(batch)
    assert share['img'] is X
    assert len(share['boxes']) == 2
    assert share['boxes'][1] is X
    assert share['meta'] == ['a', 'b']
    assert type(share['pair']) is Pair
    assert share['nested'][0][0] is X
    assert share['nested'][0][1] == 3
    assert share['empty'] == {}


@pytest.mark.parametrize('given', [3, None, 'ab', (), [], {}])
def test_anything_else_goes_to_each_device(given):
    assert scatter(given, [-1, -1]) == [given, given]


def test_each_device_gets_its_entry():
    batch = {'meta': DataContainer([['a'], ['b']], cpu_only=True), 'n': 1}
    assert scatter(batch, [0, 1]) == [{'meta': ['a'], 'n': 1}, {'meta': ['b'], 'n': 1}]


def test_what_is_no_tensor_must_be_kept_on_the_cpu():
    with pytest.raises(TypeError, match=r'DataContainer\(…, cpu_only=True\)'):
        scatter([DataContainer([3])], [-1])


def test_what_is_scattered_is_contiguous_as_in_mmcv():
    turned = torch.arange(24.0).reshape(2, 3, 4).transpose(1, 2)
    inputs = {'a': turned, 'b': [DataContainer([turned], stack=True)], 'c': DataContainer([[turned]], cpu_only=True)}
    (found,) = scatter(inputs, [-1])
    assert found['a'].is_contiguous()
    assert found['b'][0].is_contiguous()
    assert not found['c'][0].is_contiguous()
    assert torch.equal(found['a'], turned)
    (kept,) = scatter(inputs, [-1], keep_strides=True)
    assert kept['a'] is turned
    assert kept['b'][0] is turned
    assert to_device(turned, 'cpu') is turned


def test_both_kinds_of_arguments_have_a_share_for_each_device():
    assert scatter_kwargs((1,), {'a': DataContainer(['b'], cpu_only=True)}, [-1]) == (((1,),), ({'a': 'b'},))
    assert scatter_kwargs((1,), {}, [-1, -1]) == (((1,), (1,)), ({}, {}))
    assert scatter_kwargs((), {'a': 1}, [-1]) == (((),), ({'a': 1},))
    assert scatter_kwargs((), {}, [-1]) == ((), ())


def test_a_container_moves_as_one_and_what_it_keeps_does_not():
    kept, moving = DataContainer([[X]], cpu_only=True), DataContainer([X], stack=True, padding_value=3)
    moved = to_device({'kept': kept, 'moving': moving}, 'meta')
    assert moved['kept'] is kept
    assert moved['moving'].data[0].device.type == 'meta'
    assert moved['moving'].padding_value == 3
    assert moving.data[0] is X
