"""Moving nested batches."""

from collections import OrderedDict, defaultdict, namedtuple

import pytest
import torch

from runnerkit.parallel import to_device

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
