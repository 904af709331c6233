"""Sums of the bits of tensors: every flipped bit counts, and parts add up."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from runnerkit.parallel import bits
from runnerkit.parallel.bits import bit_sums, bit_words, checksum, has_bits, in_memory_order, placed_words

VALUES = {
    torch.float32: [0.0, -0.0, 1.5, float('nan'), float('inf')],
    torch.bfloat16: [0.0, -0.0, 1.5, float('nan'), 3.0],
    torch.float64: [0.0, -0.0, 1.5, float('nan'), 1e300],
    torch.int64: [0, -1, 2**40, 7, -(2**63)],
    torch.bool: [True, False, True, True, False],
    torch.complex64: [1 + 2j, -0.0, 3j, 4.0, 0.0],
}


def flipped(tensor, byte, bit):
    raw = tensor.clone().view(torch.uint8)
    raw[byte] ^= 1 << bit
    return raw.view(tensor.dtype)


@pytest.mark.parametrize('dtype', VALUES, ids=str)
def test_each_flipped_bit_changes_the_sum(dtype):
    tensor = torch.tensor(VALUES[dtype], dtype=dtype)
    raw = tensor.view(torch.uint8)
    places = [(i, bit) for i in range(len(raw)) for bit in range(1 if dtype is torch.bool else 8)]
    sums = {checksum(flipped(tensor, *place)) for place in places}
    assert len(sums) == len(places)
    assert checksum(tensor) not in sums


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64, torch.bfloat16])
def test_turned_signs_and_swapped_numbers_change_the_sum(dtype):
    tensor = torch.arange(1, 9).to(dtype)
    others = [-tensor, tensor.flip(0), torch.cat([-tensor[:2], tensor[2:]])]
    others += [torch.cat([tensor[1:2], tensor[:1], tensor[2:]]), tensor + torch.tensor([1, -2, 1, 0, 0, 0, 0, 0])]
    assert len({checksum(each) for each in [tensor, *others]}) == 6


def test_a_sum_follows_values_not_strides():
    tensor = torch.arange(12.0).view(3, 4)
    assert checksum(tensor.t().contiguous().t()) == checksum(tensor)
    assert checksum(torch.stack([tensor, tensor], -1)[..., 0]) == checksum(tensor)
    assert checksum(torch.complex(tensor, tensor).conj()) == checksum(torch.complex(tensor, -tensor))


@pytest.mark.parametrize('shape', [(4, 3, 5, 5), (8, 1, 3, 3), (1, 3, 1, 1)])
def test_words_in_memory_order_are_no_copy(shape):
    tensor = torch.randn(shape).contiguous(memory_format=torch.channels_last)
    words = bit_words(in_memory_order(tensor))
    assert words.data_ptr() == tensor.data_ptr()
    assert sorted(words.tolist()) == sorted(bit_words(tensor).tolist())
    assert torch.equal(bit_words(in_memory_order(torch.ones(()))), bit_words(torch.ones(())))


@pytest.mark.parametrize('block', [7, 2**18])
def test_parts_add_up_wherever_they_are_cut(monkeypatch, block):
    monkeypatch.setattr(bits, '_BLOCK', block)
    monkeypatch.setattr(bits, '_SMALL', 5)
    bits._place_weights.cache_clear()
    tensors = [torch.randn(5, 3), torch.arange(4), torch.randn(6, dtype=torch.float64), torch.ones(()).bool()]
    placed = list(placed_words(tensors, is_first=True))
    assert [place for place, _ in placed] == [0, 15, 23, 35]
    assert list(placed_words(tensors, is_first=False)) == []
    (whole,) = bit_sums(placed)
    pieces = [(place + i, words[i : i + 4]) for place, words in placed for i in range(0, len(words), 4)]
    assert sum(int(*bit_sums([piece])) for piece in pieces) % 2**64 == int(whole) % 2**64
    bits._place_weights.cache_clear()


def test_what_has_no_bits_to_read_is_known():
    assert has_bits(torch.nn.Parameter(torch.ones(2)))
    assert not has_bits(torch.ones(2, device='meta'))
    assert not has_bits(torch.ones(0))
    assert not has_bits(torch.eye(2).to_sparse())
    assert not has_bits(torch.nn.LazyLinear(2).weight)
    assert bit_words(torch.ones(3, dtype=torch.float64)).shape == (6,)


#: Of logs that have been written: a sum that was another one would make equal runs differ.
SUMS = {
    torch.float32: 8337542329518998240,
    torch.float64: -8056836648273047670,
    torch.bfloat16: -7859030458954843346,
    torch.int64: 912312073108862324,
    torch.uint8: -3329674207670896292,
    torch.bool: 1940517258024353724,
}


@pytest.mark.parametrize('dtype', SUMS, ids=str)
def test_sums_are_those_of_earlier_versions(dtype):
    numbers = torch.arange(-150_000, 150_001)
    assert checksum((numbers / 7 if dtype.is_floating_point else numbers).to(dtype)) == SUMS[dtype]


class Operations(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


def test_a_sum_on_a_cpu_makes_no_copies_of_the_words():
    with Operations() as operations:
        checksum(torch.ones(2**20))
    assert operations.count < 50  # ten for each of four blocks
