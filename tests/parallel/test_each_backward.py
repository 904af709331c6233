"""Gradients averaged at the end of each backward pass, in two real processes."""

import pytest
import torch
from torch import nn

from runnerkit.parallel import MMDistributedDataParallel


class Parts(nn.Module):
    """Two parts, of which a call uses those that it is told, and a table with sparse gradients."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(2, 1), nn.Linear(2, 1)
        self.norm = nn.BatchNorm1d(2)
        self.table = nn.Embedding(4, 2, sparse=True)

    def forward(self, x, parts):
        return sum(getattr(self, part)(x).sum() for part in parts)

    def some_step(self, data, optimizer):
        return {'loss': self(*data)}


def wrapped(**options):
    torch.manual_seed(0)
    model = MMDistributedDataParallel(Parts(), **options)
    model.averages_each_backward = True
    return model


def batch(rank):
    return torch.tensor([[1.0, 2.0], [3.0, 5.0]]) * (rank + 1)


def grads(model):
    return {
        name: None if each.grad is None else each.grad.to_dense().clone()
        for name, each in model.module.named_parameters()
    }


def everything(rank):
    found = {}
    model = wrapped()
    model.some_step((batch(rank), ['left']), None)['loss'].backward()
    found['one part'] = grads(model)
    model(batch(rank), ['left', 'right']).backward()  # added to the first ones
    found['added'] = grads(model)

    model = wrapped()
    with model.no_sync():
        model(batch(rank), ['left']).backward()
    found['no_sync'] = grads(model)
    model.averages_each_backward = False
    model(batch(rank), ['left']).backward()  # now DistributedDataParallel waits for the other parts
    found['off'] = grads(model)

    model = wrapped(find_unused_parameters=True)
    model(batch(rank), ['left', 'right'] if rank else ['left']).backward()
    found['differ'] = grads(model)

    model = wrapped()
    model.module.table(torch.tensor([rank, 3])).sum().backward()  # not through the wrapper
    found['sparse'] = grads(model)
    broken = model.module.left(batch(rank)).sum()
    broken.register_hook(lambda grad: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        (broken * model.module.right(batch(rank)).sum()).backward()
    model(batch(rank), ['left', 'norm']).backward()
    found['after an error'] = grads(model)['left.weight']

    model = wrapped()
    model.module.norm.running_mean.fill_(rank)
    model(batch(rank), ['left'])
    kept = wrapped(broadcast_buffers=False)
    kept.module.norm.running_mean.fill_(rank)
    kept(batch(rank), ['left'])
    found['buffers'] = [each.module.norm.running_mean[0].item() for each in (model, kept)]
    with torch.no_grad():
        found['without gradients'] = model.some_step((batch(rank), ['left']), None)['loss'].requires_grad
    return found


@pytest.fixture(scope='module')
def results(on_ranks):
    return on_ranks(__file__, 'everything')


MEAN = (batch(0) + batch(1)).sum(0, keepdim=True) / 2


def test_only_what_is_reached_is_averaged(results):
    for result in results:
        assert torch.equal(result['one part']['left.weight'], MEAN)
        assert all(grad is None for name, grad in result['one part'].items() if 'left' not in name)


def test_gradients_of_several_passes_add_up(results):
    for result in results:
        assert torch.equal(result['added']['left.weight'], 2 * MEAN)
        assert torch.equal(result['added']['right.weight'], MEAN)


def test_within_no_sync_and_switched_off_nothing_is_averaged(results):
    for rank, result in enumerate(results):
        own = batch(rank).sum(0, keepdim=True)
        assert torch.equal(result['no_sync']['left.weight'], own)
        assert torch.equal(result['off']['left.weight'], 2 * own)


def test_ranks_may_differ_with_find_unused_parameters(results):
    for result in results:
        assert torch.equal(result['differ']['left.weight'], MEAN)
        assert torch.equal(result['differ']['right.weight'], batch(1).sum(0, keepdim=True) / 2)
        assert result['differ']['norm.weight'] is None


def test_sparse_gradients_stay_sparse_and_are_averaged(results):
    expected = torch.tensor([[0.5, 0.5], [0.5, 0.5], [0.0, 0.0], [1.0, 1.0]])
    assert all(torch.equal(result['sparse']['table.weight'], expected) for result in results)


def test_a_pass_that_fails_leaves_nothing_behind(results):
    assert torch.equal(results[0]['after an error'], results[1]['after an error'])


def test_buffers_are_those_of_the_first_rank_unless_told_otherwise(results):
    assert [result['buffers'] for result in results] == [[0.0, 0.0], [0.0, 1.0]]


def test_steps_without_gradients_go_to_the_model(results):
    assert [result['without gradients'] for result in results] == [False, False]
