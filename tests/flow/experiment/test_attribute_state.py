"""What of an experiment's own attributes is saved, and how it is given back."""

import random
from collections import deque

import numpy as np
import torch
from torch import nn

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
    own = AttributeState(found)
    state = own.state_dict(found, set())
    assert state['values'] == {}
    assert set(state['attributes']) == {'net', 'random', "parts['rates'][0]"}
    assert "parts['rates'][0]" not in own.state_dict(found, {id(found['parts']['rates'][0])})['attributes']
    change(found)
    state = own.state_dict(found, set())
    assert set(state['values']) == {'number', 'text', 'tensor', 'fields', 'pair', 'recent', 'names', 'new'}
    found['tensor'].add_(1)
    assert state['values']['tensor'].tolist() == [1, 1]  # a copy
    assert own.unsaved(found) == []


def test_it_is_given_back_in_place():
    saved = attributes()
    own = AttributeState(saved)
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
    own = AttributeState(found)
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
    own = AttributeState(found)
    assert own.unsaved(found) == []
    found['array'] += 1
    found['long'].append(1)
    found['in a list'][0] += 1
    assert own.unsaved(found) == ['array', 'long', 'in a list']
    assert own.state_dict(found, set()) == {'attributes': {}, 'values': {}}


def test_what_holds_itself_does_not_hang():
    found = {'loop': [1]}
    found['loop'].append(found['loop'])
    own = AttributeState(found)
    found['loop'].append(2)
    assert own.state_dict(found, set()) == {'attributes': {}, 'values': {}}
