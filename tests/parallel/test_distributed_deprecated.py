"""The wrapper that leaves the gradients alone, in two processes and in one."""

import pytest
import torch
from torch import nn

from runnerkit.parallel import is_module_wrapper
from runnerkit.parallel.distributed_deprecated import MMDistributedDataParallel


@pytest.fixture
def deprecated(results):
    return [result['deprecated'] for result in results]


def test_all_start_with_the_first_ranks_weights(deprecated):
    assert all(torch.equal(a, b) for a, b in zip(deprecated[0]['parameters'], deprecated[1]['parameters'], strict=True))
    assert deprecated[0]['called'] == deprecated[1]['called']


def test_buffers_are_the_first_ranks_unless_they_are_not_to_be(deprecated):
    assert [result['buffers'] for result in deprecated] == [([0.0] * 3, [0.0] * 3), ([1.0] * 3, [0.0] * 3)]


def test_gradients_are_each_ranks_own_until_somebody_averages_them(deprecated):
    first, second = deprecated
    assert not torch.equal(first['own'][0], second['own'][0])
    for a, b, mean in zip(first['own'], second['own'], second['mean'], strict=True):
        assert torch.allclose((a + b) / 2, mean, atol=1e-6)


def test_alone_it_is_a_wrapper_that_unpacks():
    model = MMDistributedDataParallel(nn.Linear(2, 1), 0, True, 5)
    assert is_module_wrapper(model)
    assert model.broadcast_bucket_size == 5 * 2**20
    assert model(torch.ones(3, 2)).shape == (3, 1)
    assert is_module_wrapper(MMDistributedDataParallel(nn.ReLU()))
