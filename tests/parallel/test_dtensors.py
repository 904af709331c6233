"""Tensors that are spread over processes; what they do on several ranks is in tests/runner/test_sharded.py."""

import subprocess
import sys

import pytest
import torch

from runnerkit.parallel.dtensors import is_dtensor, is_sharded, laid_out_like, local_part, own_of_stacked


def test_an_ordinary_model_is_not_sharded():
    model = torch.nn.Linear(2, 1)
    assert not is_sharded(model)
    assert not is_dtensor(model.weight)


def test_ordinary_tensors_stay_as_they_are():
    value = torch.ones(3, requires_grad=True)
    assert laid_out_like(value, torch.zeros(3)) is value
    assert laid_out_like(value, None) is value
    part = local_part(value)
    assert part.data_ptr() == value.data_ptr()
    assert not part.requires_grad


@pytest.mark.thorough  # tests/test_house.py: what the runner brings in
def test_asking_imports_nothing():
    """`torch.distributed.tensor` takes a second or two."""
    code = (
        'import sys, torch\n'
        'from runnerkit.parallel.dtensors import is_sharded\n'
        'assert not is_sharded(torch.nn.Linear(1, 1))\n'
        "assert 'torch.distributed.tensor' not in sys.modules\n"
    )
    subprocess.run([sys.executable, '-c', code], check=True)


@pytest.mark.parametrize('world_size, expected', [(2, [3.0, 4.0]), (3, [2.0, 3.0])])
def test_what_a_rank_has_stacked_or_the_mean_for_other_ranks(world_size, expected):
    value = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert own_of_stacked(value, 1, world_size).tolist() == expected


def test_a_wrapper_that_is_no_module_is_not_sharded():
    class Passes:
        def __init__(self, module):
            self.module = module

    assert not is_sharded(Passes(torch.nn.Linear(1, 1)))
