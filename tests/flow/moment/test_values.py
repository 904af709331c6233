"""How two values of two runs differ."""

import math

import pytest
import torch

from runnerkit.flow.moment.values import MISSING, difference_of, furthest


def test_values_are_compared_by_their_bits():
    assert 'in its bits alone' in difference_of('x', torch.tensor([0.0]), torch.tensor([-0.0]))
    assert difference_of('x', torch.tensor([float('nan')]), torch.tensor([float('nan')])) == ''
    assert difference_of('x', 1, 1.0) == 'x was 1 and is 1.0'
    assert difference_of('x', float('nan'), float('nan')) == ''
    assert difference_of('x', MISSING, 1, 'AB') == 'x is missing in A'
    assert difference_of('x', 1, MISSING) == 'x is missing in the replay'
    assert 'torch.float64' in difference_of('x', torch.zeros(2), torch.zeros(2, dtype=torch.float64))


@pytest.mark.parametrize(
    ('one', 'other', 'said'),
    [
        ([0.3, 7.0], [math.nextafter(0.3, 1), 7.0], '0 ulp'),  # which 32 bits do not show
        ([1.0, math.nan], [2.0, math.nan], '1'),
        ([1.0, math.inf], [1.0, 5.0], 'inf'),
        ([1, 5], [2, 5], '1'),
        ([1.0, 2.0], [1.0, 2.0], '0 ulp'),
        ([1j, 0j], [3j, 0j], '2'),
    ],
)
def test_how_far_apart_two_tensors_are(one, other, said):
    assert furthest(torch.tensor(one, dtype=None), torch.tensor(other))[2] == said


def test_ulps_are_those_of_32_bits():
    one = torch.tensor([0.3, 1.0])
    other = torch.nextafter(one, torch.tensor([1.0, 1.0]))
    assert furthest(one, other) == (one[0].item(), other[0].item(), '1 ulp')
    assert furthest(one.double(), other.double())[2] == '1 ulp'
    assert furthest(one[0], other[0])[2] == '1 ulp'
