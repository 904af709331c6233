"""The bits of a tensor."""

import pytest
import torch

from runnerkit.parallel.bits import view_bits


@pytest.mark.parametrize(
    ('tensor', 'bits'),
    [
        (torch.tensor([0.0, -0.0]), [0, -(2**31)]),
        (torch.tensor(1.5).bfloat16(), 0x3FC0),
        (torch.tensor([True, False]), [1, 0]),
        (torch.tensor([3, -1]), [3, -1]),
        (torch.tensor([1.0], dtype=torch.float64), [0x3FF << 52]),
        (torch.tensor(1.0).to(torch.float8_e4m3fn), 0x38),
        (torch.tensor([2 + 0j]), [[0x40000000, 0]]),
    ],
    ids=str,
)
def test_bits_are_integers_of_the_same_size(tensor, bits):
    found = view_bits(tensor)
    assert found.tolist() == bits
    assert not found.is_floating_point()
    assert found.element_size() == (tensor.real if tensor.is_complex() else tensor).element_size()


def test_each_nan_has_its_own_bits():
    patterns = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32)
    numbers = patterns.view(torch.float)
    assert numbers.isnan().all()
    assert torch.equal(view_bits(numbers), patterns)


def test_bits_share_the_memory_whatever_the_strides():
    tensor = torch.arange(6.0).reshape(2, 3)
    bits = view_bits(tensor.t())
    assert bits.shape == (3, 2)
    tensor[0, 1] = -0.0
    assert bits[1, 0] == -(2**31)


def test_the_values_of_a_lazy_conjugate_or_negation_are_seen():
    tensor = torch.tensor([1 + 2j])
    assert torch.equal(view_bits(tensor.conj()), view_bits(torch.tensor([1 - 2j])))
    assert torch.equal(view_bits(tensor.conj().imag), view_bits(torch.tensor([-2.0])))


def test_a_parameter_needs_no_detach():
    assert view_bits(torch.nn.Parameter(torch.zeros(2))).tolist() == [0, 0]
