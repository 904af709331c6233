"""Private random streams: randomness inside a sample as a function of its position, and of nothing else.

Python's, numpy's and torch's global generators are seeded for every sample, from (seed, epoch, position). In the
main process the same generators also belong to the run (dropout, a user's own draws), so they are saved before a
batch and put back after it. The generators of accelerators and those that a data set owns are left alone.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np
import torch

T = TypeVar('T')

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15

#: Bit generators that no open `private_streams` uses: making one takes longer than seeding a sample.
_spare: list[np.random.MT19937] = []


def _finalize(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def mix_seed(*parts: int) -> int:
    """One seed of 64 bits from several numbers, whose order counts; near numbers give unrelated seeds.

    Each part is one step of SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators").
    """
    seed = 0
    for part in parts:
        seed = _finalize(((seed ^ part) + _GOLDEN) & _MASK)
    return seed


def sample_seed(base: int, position: int) -> int:
    """The seed of the sample at ``position``: that number of the SplitMix64 sequence that starts at ``base``."""
    return _finalize((base + (position + 1) * _GOLDEN) & _MASK)


def seed_streams(seed: int) -> None:
    """Seed the global generators of python, numpy and torch (CPU). Only for use inside `private_streams`."""
    # torch.manual_seed would reseed every accelerator as well, which is slow and changes the run's streams there.
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed >> 32)
    random.seed(seed)


class private_streams:
    """A context in which the global generators are private, and torch computes with one thread as loader workers do.

    On leaving it, also by an exception, the generators go on as if nothing had been drawn inside. Contexts may be
    nested; two threads must not be inside at the same time, since the generators are the process's.
    """

    def __enter__(self) -> None:
        # Sums over large tensors differ in their last bits with the number of threads.
        self._threads = torch.get_num_threads()
        if self._threads != 1:
            torch.set_num_threads(1)
        self._torch = torch.default_generator.get_state()
        self._python = random.getstate()
        self._numpy = np.random.get_bit_generator()  # type: ignore[attr-defined] # public, but not in numpy's stubs
        self._numpy_state = np.random.get_state(legacy=False)
        self._own = _spare.pop() if _spare else np.random.MT19937(0)
        np.random.set_bit_generator(self._own)  # type: ignore[attr-defined]

    def __exit__(self, *exc_info: object) -> None:
        np.random.set_bit_generator(self._numpy)  # type: ignore[attr-defined]
        # numpy draws normals in pairs, and a waiting second one was dropped with the bits. The state is set only then:
        # it costs 30 µs, since its 624 words are converted one by one.
        if self._numpy_state['has_gauss']:
            np.random.set_state(self._numpy_state)
        _spare.append(self._own)
        random.setstate(self._python)
        torch.default_generator.set_state(self._torch)
        if self._threads != 1:
            torch.set_num_threads(self._threads)


def seeded_iteration(iterable: Iterable[T], base: int, block: int = 1) -> Iterator[T]:
    """Iterate with private streams, seeded from ``base`` and a number before every item, or every ``block`` of them.

    Nothing of the private streams is visible between two items, however long the consumer keeps the iterator.
    """
    with private_streams():
        seed_streams(base)
        iterator = iter(iterable)
    for number in itertools.count():
        with private_streams():
            seed_streams(sample_seed(base, number))
            items = list(itertools.islice(iterator, block))
        yield from items
        if len(items) < block:
            return
