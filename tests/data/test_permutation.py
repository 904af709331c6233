import math

import numpy as np
import pytest

from runnerkit.data.permutation import BLOCK, Permutation

#: Lengths that are too large for a list of all numbers, up to the largest one.
LARGE = (2**24 + 1, 10**9, 3 * 10**12, 2**63 - 1)


def test_each_number_comes_once_for_small_lengths():
    for length in (*range(600), *range(600, 5001, 53)):
        permutation = Permutation(length, key=length * 7)
        indices = permutation.indices(range(length))
        assert np.array_equal(np.sort(indices), np.arange(length)), length


@pytest.mark.parametrize('length', LARGE)
def test_different_positions_of_a_large_one_have_different_numbers(length):
    positions = np.unique(np.random.default_rng(0).integers(length, size=100_000))
    indices = Permutation(length, 5).indices(positions)
    assert indices.dtype == np.int64
    assert 0 <= indices.min() <= indices.max() < length
    assert len(np.unique(indices)) == len(positions)


def test_a_part_is_what_the_whole_has_there():
    permutation = Permutation(3 * BLOCK + 5, 1)
    whole = permutation.indices(range(3 * BLOCK + 5))
    for positions in (range(0), range(7, 8), range(5, 3 * BLOCK, 3), range(2 * BLOCK, BLOCK, -1)):
        assert np.array_equal(permutation.indices(positions), whole[np.array(positions, dtype=np.int64)])
    square = np.arange(12).reshape(3, 4)
    assert np.array_equal(permutation.indices(square), whole[:12].reshape(3, 4))


def test_the_numbers_are_these():
    """A changed round function or key would change the order of runs that are resumed."""
    assert Permutation(10**9, 0).indices(range(4)).tolist() == [779217777, 548215334, 195620411, 786415115]
    assert Permutation(10, 2**64 - 1).indices(range(10)).tolist() == [2, 7, 5, 6, 9, 8, 3, 0, 4, 1]
    assert Permutation(10**15, -1).indices(range(2)).tolist() == [73459797881557, 143006018718250]


def test_keys_give_other_permutations():
    orders = np.stack([Permutation(10**6, key).indices(range(1000)) for key in range(50)])
    for one in range(50):
        for other in range(one):
            assert (orders[one] == orders[other]).sum() <= 2


def chi_square(counts):
    """How far counts are from equal ones, in standard deviations of a sum of that many."""
    expected = counts.sum() / counts.size
    return (((counts - expected) ** 2).sum() / expected - (counts.size - 1)) / math.sqrt(2 * (counts.size - 1))


#: How far a statistic may be from what chance gives, in standard deviations.
SURE = 4.5


@pytest.mark.parametrize('length', [2**24 + 1, 10**9])
def test_the_order_is_flat(length):
    """Where the indices of a stretch of the order lie, and how they follow each other, is like chance."""
    for key in range(3):
        permutation = Permutation(length, key)
        start = length // 3
        stretch = permutation.indices(range(start, start + 100_000))
        assert abs(chi_square(np.bincount(stretch * 64 // length, minlength=64))) < SURE
        for lag in (1, 2, 32, 100):
            pairs = np.stack([stretch[:-lag], stretch[lag:]]) / length - 0.5
            assert abs((pairs[0] * pairs[1]).mean() * 12 * math.sqrt(pairs.shape[1])) < SURE
            cells = (pairs + 0.5) * 16
            both = cells[0].astype(int) * 16 + cells[1].astype(int)
            assert abs(chi_square(np.bincount(both, minlength=256))) < SURE
        assert abs(np.corrcoef(stretch, np.arange(stretch.size))[0, 1] * math.sqrt(stretch.size)) < SURE
        # The low digits, which a poor round function leaves as they are.
        assert abs(chi_square(np.bincount(stretch % 61, minlength=61))) < SURE


def test_every_place_gets_every_number_equally_often():
    """Over many keys."""
    for length in (97, 256):
        orders = np.stack([Permutation(length, key).indices(range(length)) for key in range(3000)])
        where = np.arange(length) * length + orders
        assert abs(chi_square(np.bincount(where.reshape(-1), minlength=length**2))) < SURE
        # Neighbours stay neighbours no more often than by chance.
        steps = np.bincount((np.diff(orders, axis=1) % length).reshape(-1), minlength=length)
        assert steps[0] == 0
        assert abs(chi_square(steps[1:])) < SURE


@pytest.mark.parametrize('positions', [range(-1, 3), range(8, 11), np.array([10])])
def test_positions_out_of_range(positions):
    with pytest.raises(IndexError, match='of the numbers from 0 up to 10'):
        Permutation(10, 0).indices(positions)


@pytest.mark.parametrize('length, text', [(-1, 'at least 0'), (2**63, 'less than 2')])
def test_lengths_out_of_range(length, text):
    with pytest.raises(ValueError, match=text):
        Permutation(length, 0)
