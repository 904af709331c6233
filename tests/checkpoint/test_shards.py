"""Taking a checkpoint apart into tensors and the rest, and putting it together again."""

from collections import OrderedDict

import pytest
import torch
from folders import checkpoint, same

from runnerkit.checkpoint.content import raw_checkpoint
from runnerkit.checkpoint.shards import EACH, PLACES, layout_of, put_together, taken_apart


def test_a_checkpoint_is_put_together_as_it_was():
    whole = checkpoint()
    before = checkpoint()
    tensors, rest = taken_apart(whole)
    assert sorted(tensors) == ['optimizer.state.0.exp_avg', 'state_dict.b', 'state_dict.w']
    assert rest['state_dict']['w'] is None
    assert rest['state_dict']['count'] is whole['state_dict']['count']
    assert rest['runnerkit'] is whole['runnerkit']
    assert same(put_together(rest, tensors), before)
    assert same(whole, before)  # it was not changed


def test_the_versions_of_modules_are_kept():
    state = OrderedDict(w=torch.ones(2))
    state._metadata = {'': {'version': 2}}
    tensors, rest = taken_apart({'state_dict': state})
    assert put_together(rest, tensors)['state_dict']._metadata == {'': {'version': 2}}


def test_a_tensor_of_each_rank_is_put_where_each_rank_looks_for_it():
    _, rest = taken_apart({'state_dict': {}})
    rest['runnerkit'] = {'ranks': [{'updates': {'': {'grads': [None]}}} for _ in range(2)]}
    rest[PLACES]['g'] = ('runnerkit', 'ranks', EACH, 'updates', '', 'grads', 0)
    gradient = torch.ones(2)
    ranks = put_together(rest, {'g': gradient})['runnerkit']['ranks']
    assert all(rank['updates']['']['grads'][0] is gradient for rank in ranks)


def test_places_that_read_the_same_are_kept_apart_and_sparse_tensors_stay():
    state = {'a.b': torch.ones(2), 'a': {'b': torch.zeros(2)}, 'sparse': torch.eye(2).to_sparse()}
    tensors, rest = taken_apart({'state_dict': {}, 'optimizer': {'state': {0: state}}})
    assert len(tensors) == 2
    assert rest['optimizer']['state'][0]['sparse'] is state['sparse']
    found = put_together(rest, tensors)['optimizer']['state'][0]
    assert found['a.b'] is state['a.b']
    assert found['a']['b'] is state['a']['b']


def test_tensors_that_were_not_read_leave_none():
    tensors, rest = taken_apart(checkpoint())
    found = put_together(rest, {'state_dict.w': tensors['state_dict.w']})
    assert found['optimizer']['state'][0]['exp_avg'] is None
    assert found['state_dict']['w'] is tensors['state_dict.w']


@pytest.mark.parametrize('place', [('state_dict', 'inner', 'w'), ('nothing', 'w'), ('meta', 'epoch', 0)])
def test_a_place_that_the_rest_lacks_is_refused(place):
    tensors, rest = taken_apart(checkpoint())
    with pytest.raises(ValueError, match=r"no place for its tensor 'w'"):
        put_together({**rest, PLACES: {'w': place}}, {'w': tensors['state_dict.w']})


def test_an_optimizer_without_state_stays_without():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    _, rest = taken_apart(raw_checkpoint(model, optimizer))
    assert rest['optimizer']['state'] == {}
    assert len(optimizer.state) == 0


def test_without_sharded_tensors_there_is_no_layout_to_follow():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert layout_of(model.state_dict(), {'': optimizer}, lambda name: f'ema_{name}') == {}
