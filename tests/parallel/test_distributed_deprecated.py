"""The wrapper that leaves the gradients alone, in two processes and in one."""

from pathlib import Path

import pytest
import torch
from torch import nn

from runnerkit.parallel import is_module_wrapper
from runnerkit.parallel.distributed_deprecated import MMDistributedDataParallel


@pytest.fixture(scope='module')
def results(on_ranks):
    return on_ranks(Path(__file__).with_name('ddp_runs.py'), 'deprecated')


def test_all_start_with_the_first_ranks_weights(results):
    assert all(torch.equal(a, b) for a, b in zip(results[0]['parameters'], results[1]['parameters'], strict=True))
    assert results[0]['called'] == results[1]['called']


def test_buffers_are_the_first_ranks_unless_they_are_not_to_be(results):
    assert [result['buffers'] for result in results] == [([0.0] * 3, [0.0] * 3), ([1.0] * 3, [0.0] * 3)]


def test_gradients_are_each_ranks_own_until_somebody_averages_them(results):
    first, second = results
    assert not torch.equal(first['own'][0], second['own'][0])
    for a, b, mean in zip(first['own'], second['own'], second['mean'], strict=True):
        assert torch.allclose((a + b) / 2, mean, atol=1e-6)


def test_alone_it_is_a_wrapper_that_unpacks():
    model = MMDistributedDataParallel(nn.Linear(2, 1), 0, True, 5)
    assert is_module_wrapper(model)
    assert model.broadcast_bucket_size == 5 * 2**20
    assert model(torch.ones(3, 2)).shape == (3, 1)
    assert is_module_wrapper(MMDistributedDataParallel(nn.ReLU()))
