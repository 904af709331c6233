"""What of an experiment's own attributes is saved, and how it is given back."""

import random
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from enum import Enum
from functools import partial
from pathlib import PurePath
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from runnerkit.checkpoint import CheckpointLoader, save_checkpoint
from runnerkit.flow.experiment.attribute_state import AttributeState, load_state, put_back, stateful


def attributes():
    """Of every kind, each time the same."""
    net = nn.Linear(2, 2)
    return {
        'number': 1,
        'text': 'a',
        'tensor': torch.zeros(2),
        'fields': {'a': torch.zeros(1), 'b': [1, 2]},
        'pair': (1, torch.zeros(1)),
        'recent': deque([1], maxlen=2),
        'names': {'a'},
        'kept': [3],
        'net': net,
        'parts': {'rates': [torch.optim.SGD(net.parameters(), lr=0.1)], 'twice': net},
        'random': random.Random(1),
        'other': object(),
        'result': net(torch.ones(2)),
    }


def change(found):
    """As a training would."""
    found['number'], found['text'] = 2, 'b'
    found['tensor'].add_(1)
    found['fields']['a'] = torch.ones(1)
    found['pair'] = (2, torch.ones(1))
    found['recent'].extend([2, 3])
    found['names'].add('b')
    found['new'] = [True, None]
    found['result'] = found['net'](torch.ones(2))
    found['random'].random()


def test_what_has_changed_and_what_has_a_state_is_saved():
    found = attributes()
    own = AttributeState(found, set())
    state = own.state_dict(found, set())
    assert state['values'] == {}
    assert set(state['attributes']) == {'net', 'random', "parts['rates'][0]"}
    assert "parts['rates'][0]" not in own.state_dict(found, {id(found['parts']['rates'][0])})['attributes']
    change(found)
    state = own.state_dict(found, set())
    assert set(state['values']) == {'number', 'text', 'tensor', 'fields', 'pair', 'recent', 'names', 'new'}
    found['tensor'].add_(1)
    assert state['values']['tensor'].tolist() == [1, 1]  # a copy
    assert own.unsaved(found, set()) == []


def test_it_is_given_back_in_place():
    saved = attributes()
    own = AttributeState(saved, set())
    change(saved)
    state = own.state_dict(saved, set())
    fresh = attributes()
    same = {name: fresh[name] for name in ('tensor', 'fields', 'recent', 'names')}
    for name, value in state['values'].items():
        fresh[name] = put_back(fresh.get(name), value)
    for place, each in stateful(fresh, set()):
        load_state(each, state['attributes'][place])
    assert all(fresh[name] is each for name, each in same.items())
    assert fresh['tensor'].tolist() == [1, 1]
    assert (fresh['fields']['a'], fresh['fields']['b']) == (torch.ones(1), [1, 2])
    assert (fresh['pair'], fresh['recent'], fresh['names']) == ((2, torch.ones(1)), deque([2, 3], maxlen=2), {'a', 'b'})
    assert fresh['new'] == [True, None]
    assert fresh['random'].random() == saved['random'].random()
    assert torch.equal(fresh['net'].weight, saved['net'].weight)
    assert own.state_dict(saved, set())['values'].keys() == state['values'].keys()


def test_a_tensor_that_is_replaced_by_a_new_one_each_time_has_changed():
    found = {'mean': torch.zeros(1)}
    own = AttributeState(found, set())
    for _ in range(50):
        found['mean'] = found['mean'] + 0
        assert set(own.state_dict(found, set())['values']) == {'mean'}


def test_the_tensor_of_an_optimizer_stays_the_one_it_updates():
    temperature = torch.zeros(1, requires_grad=True)
    assert put_back(temperature, torch.ones(1)) is temperature
    assert temperature.item() == 1
    assert put_back(temperature, torch.ones(2)).tolist() == [1, 1]


def test_what_cannot_be_saved_is_named_if_it_has_changed():
    found = {'array': np.zeros(2), 'still': np.zeros(2), 'long': [0] * 10001, 'in a list': [np.zeros(1)]}
    own = AttributeState(found, set())
    assert own.unsaved(found, set()) == []
    found['array'] += 1
    found['long'].append(1)
    found['in a list'][0] += 1
    assert own.unsaved(found, set()) == ['array', 'long', 'in a list']
    assert own.state_dict(found, set()) == {'attributes': {}, 'values': {}}


def test_what_holds_itself_does_not_hang():
    found = {'loop': [1]}
    found['loop'].append(found['loop'])
    own = AttributeState(found, set())
    found['loop'].append(2)
    assert own.state_dict(found, set()) == {'attributes': {}, 'values': {}}


Best = namedtuple('Best', 'iter score')


class Phase(Enum):
    WARM = 1
    FULL = 2


def written(found, name, value):
    found[name] = value
    return found


#: What a program sets at first, and what becomes of that: each comes back as it was.
EXACT = {
    'a number of numpy': (lambda: 0.0, lambda now: np.float32(0.1)),
    'numbers of numpy': (list, lambda now: [*now, np.float64(0.5), np.int64(3), np.bool_(True)]),
    'a tuple': (lambda: None, lambda now: (0.5, 3)),
    'a set': (lambda: None, lambda now: {1, 2}),
    'tuples in a list': (list, lambda now: [*now, (1, (2.0, 'a'))]),
    'tuples in a set': (set, lambda now: now | {(1, 2)}),
    'tuples as keys': (dict, lambda now: written(now, (1, 2), [3])),
    'tuples in a deque': (partial(deque, maxlen=2), lambda now: (now.append((1, torch.ones(1))), now)[1]),
    'a named tuple': (lambda: Best(0, 0.0), lambda now: Best(1, 0.5)),
    'a counter': (lambda: None, lambda now: Counter('aab')),
    'an ordered dict': (lambda: None, lambda now: OrderedDict(b=1, a=2)),
    'a defaultdict': (lambda: defaultdict(list), lambda now: (now['a'].append(1), now)[1]),
    'a number for a bool': (lambda: True, lambda now: 1),
    'a parameter': (lambda: nn.Parameter(torch.zeros(2)), lambda now: nn.Parameter(torch.ones(2))),
}

#: What does not come back, and is named therefore.
TOLD = {
    'one of many': (lambda: [0.0] * 20000, lambda now: written(now, 3, 1.0)),
    'an enum member': (lambda: Phase.WARM, lambda now: Phase.FULL),
    'a path': (lambda: PurePath('a'), lambda now: PurePath('b')),
    'numbers in an object': (lambda: SimpleNamespace(sum=0), lambda now: (setattr(now, 'sum', 1), now)[1]),
    'an object beside a number': (lambda: {'n': 1, 'o': object()}, lambda now: written(now, 'n', 2)),
    'a new deque': (lambda: None, lambda now: deque([1], maxlen=2)),
    'new named tuples': (list, lambda now: [Best(1, 0.5)]),
    'an iterator': (lambda: iter([1, 2, 3]), lambda now: (next(now), now)[1]),
    'a new parameter': (lambda: None, lambda now: nn.Parameter(torch.ones(2))),
    'an enum member as a key': (dict, lambda now: written(now, Phase.WARM, 1)),
}


def after_a_resume(first, later, folder):
    """What a resumed program has in the place of ``later``, and the names that were told."""
    made = first()
    own, found = AttributeState({'it': made}, set()), {'it': later(made)}
    save_checkpoint(nn.Linear(1, 1), str(folder / 'it.pth'), meta=own.state_dict(found, set()))
    saved = CheckpointLoader.load_checkpoint(str(folder / 'it.pth'))['meta']['values']
    fresh = first()
    return found['it'], put_back(fresh, saved['it']) if 'it' in saved else fresh, own.unsaved(found, set())


@pytest.mark.parametrize('name', EXACT)
def test_what_is_saved_has_its_type_again(name, tmp_path):
    value, resumed, named = after_a_resume(*EXACT[name], tmp_path)
    assert (repr(resumed), type(resumed), named) == (repr(value), type(value), [])


@pytest.mark.parametrize('name', TOLD)
def test_what_has_no_place_in_a_checkpoint_is_named(name, tmp_path):
    value, resumed, named = after_a_resume(*TOLD[name], tmp_path)
    assert named == ['it']
    assert repr(resumed) != repr(value) or resumed is not value


def test_lists_of_former_files_become_tuples_and_sets_again():
    assert put_back((1, 2), [3, 4]) == (3, 4)
    assert put_back({1}, [3, 4]) == {3, 4}


def test_what_is_saved_otherwise_is_left_out():
    net = nn.Linear(2, 1)
    saved = {id(each) for each in net.parameters()}
    found = {'weights': list(net.parameters()), 'bias': net.bias}
    own = AttributeState(found, saved)
    with torch.no_grad():
        net.bias.add_(1)
    assert own.state_dict(found, saved) == {'attributes': {}, 'values': {}}
    assert own.unsaved(found, saved) == []
