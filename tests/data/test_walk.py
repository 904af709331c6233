import random

import numpy as np
import pytest
import torch
from holders import Data, OneSlot, Order
from torch.utils.data import DataLoader, RandomSampler

from runnerkit.data.generator_state import generator_state
from runnerkit.data.walk import Opaque, collect_attributes, collect_parts, is_generator, is_stateful, kind_of


class Hidden(Opaque):
    def __init__(self):
        self.rng = random.Random(1)


def loader(dataset, **options):
    return DataLoader(dataset, 2, **options)


def generators(of):
    return [place for place, each in collect_parts(of).objects.items() if is_generator(each)]


def test_objects_and_their_values_have_places():
    rng, order = random.Random(1), Order(rng=random.Random(2), passes=3)
    data = Data(rng=rng, calls=2, rate=0.5, names=['a'], transforms=[1, Data(rng=rng, size=8)])
    found = collect_parts(loader(data, sampler=order))
    assert found.objects['loader.dataset'] is data
    assert found.objects['loader.dataset.rng'] is rng
    assert found.objects['loader.sampler'] is order
    assert 'loader.dataset.transforms[1].rng' not in found.objects  # it has a nearer place
    values = collect_attributes(loader(data, sampler=order))
    assert {place: value for place, value in values.items() if '.dataset' in place or '.sampler' in place} == {
        'loader.sampler.passes': 3,
        'loader.dataset.calls': 2,
        'loader.dataset.rate': 0.5,
        'loader.dataset.names': ['a'],
        'loader.dataset.transforms': data.transforms,
        'loader.dataset.transforms[1].size': 8,
    }
    assert {'loader.sampler', 'loader.sampler.rng'} <= found.of_order
    assert not any('.dataset' in place for place in found.of_order)


def test_a_shared_generator_has_its_nearest_place():
    rng = torch.Generator()
    shared = loader(Data(deep=[[rng]]), sampler=RandomSampler(Data(), generator=rng), generator=rng)
    assert generators(shared) == ['loader.generator']


def test_a_single_slot():
    slots = OneSlot(1)
    slots.more = random.Random(1)
    assert generators(loader(Data(slots=slots))) == ['loader.dataset.slots.more']


def test_an_end_of_looking_around():
    first = Data()
    first.me = first
    at = first
    for _ in range(3000):
        at.next = Data()
        at = at.next
    at.rng = random.Random(1)
    first.near = Data(rng=random.Random(1))
    assert generators(loader(first)) == ['loader.dataset.near.rng']


def test_what_is_opaque_is_not_looked_into():
    assert generators(loader(Data(hidden=Hidden()))) == []


@pytest.mark.parametrize(
    'value, kinds',
    [
        (random.Random(1), {'is_generator'}),
        (np.random.default_rng(1), {'is_generator'}),
        (iter([1]), {'is_iterator', 'is_value', 'is_leaf'}),
        (torch.zeros(1), {'is_value', 'is_leaf'}),
        ([1], {'is_value'}),
        (torch.nn.ReLU(), {'is_leaf'}),
        (Data(), set()),
    ],
)
def test_kinds(value, kinds):
    assert {name for name, holds in kind_of(value)._asdict().items() if holds} == kinds


def test_what_has_a_state():
    assert is_stateful(torch.nn.ReLU())
    assert not is_stateful(Data(state_dict=dict))
    assert not is_stateful(generator_state(random.Random(1)))
