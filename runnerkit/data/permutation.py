"""A permutation of [0, n) of which any part is computed by itself, in constant time and memory.

It is a Feistel network over pairs of numbers (Luby and Rackoff 1988, "How to construct pseudorandom permutations from
pseudorandom functions"), made to fit a domain of any size by the generalised network and the cycle walking of Black and
Rogaway (CT-RSA 2002, "Ciphers with arbitrary finite domains"): an index is written as ``left * side + right`` with
``side`` the root of n, rounded up; what falls outside of [0, n) is put through the network again until it is inside,
which happens to fewer than ``2 / side`` of the positions. There are ten rounds, as in NIST's FF1 (SP 800-38G). It is
meant to look random, not to keep secrets.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from runnerkit.data.seeding import mix_seed
from runnerkit.utils.numbers import check_whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: How many numbers are computed at once: with more, the parts of the computation leave the processor's cache.
BLOCK = 4096

_ROUNDS = 10
_HALF = np.uint64(32)

Indices: TypeAlias = 'NDArray[np.int64]'
Words: TypeAlias = 'NDArray[np.uint64]'


class Permutation:
    """A permutation of ``[0, length)`` that follows from ``length`` and ``key`` alone.

    Of fewer than about a hundred numbers, some permutations are a little more frequent than others.

    Args:
        length: at least 0 and less than 2**63.
        key: any whole number; near keys give unrelated permutations.

    Raises:
        ValueError: ``length`` is out of range.
    """

    def __init__(self, length: int, key: int) -> None:
        check_whole_number('length', length, at_least=0)
        if length >= 2**63:
            raise ValueError(f'length must be less than 2**63, but got {length}')
        self.length = length
        self._side = np.uint64(isqrt(max(length - 1, 0)) + 1)
        self._keys = [np.uint64(mix_seed(key, number)) for number in range(_ROUNDS)]

    def indices(self, positions: range | Indices) -> Indices:
        """The numbers at these positions, of any order and number."""
        if isinstance(positions, range):  # numpy would go through it one by one
            positions = np.arange(positions.start, positions.stop, positions.step, dtype=np.int64)
        if positions.size and not 0 <= positions.min() <= positions.max() < self.length:
            raise IndexError(
                f'the permutation is of the numbers from 0 up to {self.length}, without that one, but got some from '
                f'{positions.min()} to {positions.max()}'
            )
        found = np.empty(positions.shape, np.int64)
        flat, given = found.reshape(-1), positions.reshape(-1)
        for start in range(0, given.size, BLOCK):
            part = self._permuted(given[start : start + BLOCK].astype(np.uint64))
            outside = np.flatnonzero(part >= self.length)
            while outside.size:
                part[outside] = self._permuted(part[outside])
                outside = outside[part[outside] >= self.length]
            flat[start : start + BLOCK] = part
        return found

    def _permuted(self, numbers: Words) -> Words:
        left, right = np.divmod(numbers, self._side)
        for key in self._keys:
            left += self._mixed(right, key)
            np.minimum(left, left - self._side, out=left)  # modulo side: below zero is a very large number
            left, right = right, left
        return left * self._side + right

    def _mixed(self, numbers: Words, key: np.uint64) -> Words:
        """The round function: the finalizer of SplitMix64, of whose 64 bits the upper ones choose one of ``side``."""
        bits = numbers ^ key
        bits ^= bits >> np.uint64(30)
        bits *= np.uint64(0xBF58476D1CE4E5B9)
        bits ^= bits >> np.uint64(27)
        bits *= np.uint64(0x94D049BB133111EB)
        bits >>= _HALF
        bits *= self._side
        bits >>= _HALF
        return bits
