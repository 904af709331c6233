"""Which of an experiment's attributes have a state of their own, and which changes of the others are seen."""

import random
from collections import deque
from enum import Enum
from pathlib import PurePath
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from runnerkit.flow.experiment.attributes import Summaries, load_state, state_of_object, stateful
from runnerkit.hooks import EMAHook


class Phase(Enum):
    WARM = 1
    FULL = 2


def test_what_has_a_state_is_found_once_also_in_lists_and_dicts():
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    attributes = {
        'net': net,
        'parts': {'rates': [optimizer], 'twice': net},
        'random': random.Random(1),
        'hook': EMAHook(),
        'many': [nn.Linear(1, 1)] * 10_001,
        'number': 1,
    }
    attributes['parts']['itself'] = attributes['parts']
    assert set(dict(stateful(attributes, set()))) == {'net', "parts['rates'][0]", 'random'}
    assert set(dict(stateful(attributes, {id(optimizer)}))) == {'net', 'random'}


@pytest.mark.parametrize('value', [random.Random(1), torch.Generator().manual_seed(1), np.random.default_rng(1)])
def test_generators_continue(value):
    def draw():
        return torch.rand(1, generator=value).item() if isinstance(value, torch.Generator) else value.random()

    state = state_of_object(value)
    drawn = draw()
    load_state(value, state)
    assert draw() == drawn


def added(value, *items):
    value.append(*items)
    return value


#: What a program sets at first, and how it changes.
SEEN = {
    'a number': (lambda: 1, lambda now: 2),
    'a number for a bool': (lambda: True, lambda now: 1),
    'a number of numpy': (lambda: 0.0, lambda now: np.float32(0.1)),
    'a tensor': (lambda: torch.zeros(2), lambda now: now.add_(1)),
    'another tensor': (lambda: torch.zeros(2), lambda now: now + 0),
    'a parameter': (lambda: nn.Parameter(torch.zeros(2)), lambda now: nn.Parameter(now.detach())),
    'tensors in a dict': (lambda: {'a': [torch.zeros(1)]}, lambda now: [now['a'][0].add_(1), now][1]),
    'an array': (lambda: np.zeros(2), lambda now: [now.fill(1), now][1]),
    'a list': (list, lambda now: added(now, 1)),
    'a long list': (lambda: [0] * 20_000, lambda now: added(now, 1)),
    'a set': (lambda: {1}, lambda now: now | {2}),
    'a deque': (lambda: deque([1], maxlen=1), lambda now: added(now, 2)),
    'a key': (lambda: {(1, 2): 0}, lambda now: {(1, 3): 0}),
    'a list that holds itself': (lambda: [lambda now: added(now, now), []][1], lambda now: added(now, now)),
    'an enum member': (lambda: Phase.WARM, lambda now: Phase.FULL),
    'a path': (lambda: PurePath('a'), lambda now: PurePath('b')),
    'numbers in an object': (lambda: SimpleNamespace(sum=0), lambda now: [setattr(now, 'sum', 1), now][1]),
    'an object': (object, lambda now: object()),
    'an iterator': (lambda: iter([1, 2]), lambda now: [next(now), now][1]),
    'a new one': (None, lambda now: 1),
}

#: What is as it was, or is saved, or computed again.
UNSEEN = {
    'nothing': (lambda: {'a': [1, 'b', None, float('nan')], 'b': object()}, lambda now: now),
    'a module': (lambda: nn.Linear(1, 1), lambda now: [nn.init.ones_(now.weight), now][1]),
    'another module': (lambda: nn.Linear(1, 1), lambda now: nn.Linear(1, 1)),
    'a generator': (lambda: random.Random(1), lambda now: [now.random(), now][1]),
    'a result': (lambda: None, lambda now: nn.Linear(1, 1)(torch.ones(1, 1))),
    'a hook': (EMAHook, lambda now: [setattr(now, 'interval', 7), now][1]),
    'an equal list': (lambda: [1], lambda now: [1]),
}


@pytest.mark.parametrize('name', [*SEEN, *UNSEEN])
def test_changes(name):
    first, change = {**SEEN, **UNSEEN}[name]
    attributes = {} if first is None else {'it': first()}
    before = Summaries(attributes, set())
    assert Summaries(attributes, set()).changed(before) == (['it'] if name == 'an iterator' else [])
    attributes['it'] = change(attributes.get('it'))
    assert Summaries(attributes, set()).changed(before) == (['it'] if name in SEEN else [])


def test_what_is_saved_otherwise_has_not_changed():
    net = nn.Linear(2, 1)
    saved = {id(each) for each in net.parameters()}
    attributes = {'weights': list(net.parameters()), 'bias': net.bias}
    before = Summaries(attributes, saved)
    nn.init.ones_(net.bias)
    assert Summaries(attributes, saved).changed(before) == []


def test_an_object_in_the_place_of_one_that_is_gone_is_another():
    attributes = {'mean': torch.zeros(1)}
    before = Summaries(attributes, set())
    for _ in range(50):
        attributes['mean'] = attributes['mean'] + 0
        assert Summaries(attributes, set()).changed(before) == ['mean']
