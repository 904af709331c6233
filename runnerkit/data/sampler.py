"""The order of an epoch, each rank's share of it, and batches that know where they stand in it.

The *position* of a sample is its 0-based index in the epoch's order, counted over all ranks: position ``p`` belongs
to rank ``p % world_size``. So the k-th batches of all ranks together hold the same samples whatever the number of
ranks, as long as ranks times batch size stays the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from runnerkit.data.seeding import SampleBatch, mix_seed, seeded_iteration
from runnerkit.utils.exceptions import WrongValue
from runnerkit.utils.suggest import suggestion

#: The ways to shuffle: a list of all indices, drawn at once, or a function of the position, which is held nowhere.
ORDERS = ('randperm', 'feistel')

#: So many positions of an order are asked for at once, where no batches are made of them.
_MANY = 4096

#: Data sets of more samples are shuffled by ``'feistel'``; the list of so many indices takes 128 MiB.
LARGE = 2**24


def usual_order(length: int) -> str:
    """The one of `ORDERS` that shuffles ``length`` samples unless the config names another."""
    return 'feistel' if length > LARGE else 'randperm'


def epoch_order(length: int, seed: int, epoch: int, shuffle: bool = True, order: str | None = None) -> Tensor:
    """The indices of a data set of ``length`` samples in the order in which an epoch sees them, as an int64 tensor.

    Args:
        length: at least 0. This is the only function that makes a list of so many indices of any kind of order.
        seed: of the run.
        epoch: 0-based.
        shuffle: False for the data set's own order.
        order: one of `ORDERS`; by default the `usual_order`.
    """
    if not shuffle:
        return torch.arange(length)
    key = mix_seed(seed, epoch)
    if (order or usual_order(length)) == 'feistel':
        from runnerkit.data.permutation import Permutation

        return torch.from_numpy(Permutation(length, key).indices(range(length)))
    return torch.randperm(length, generator=torch.Generator().manual_seed(key))


def share(items: int, rank: int, world_size: int, round_up: bool, drop_last: bool) -> int:
    """How many of ``items`` a rank gets, if each of ``world_size`` in a row goes to one rank; see `EpochSampler`."""
    if drop_last:
        return items // world_size
    return -(-items // world_size) if round_up else len(range(rank, items, world_size))


class EpochSampler(Sampler[int]):
    """A rank's share of each epoch's order, which is a pure function of (seed, epoch).

    Args:
        dataset: anything with a length.
        shuffle: False for the data set's own order in every epoch.
        seed: the same on every rank, or their shares overlap.
        rank: of this process, in ``[0, world_size)``.
        world_size: how many ranks share an epoch.
        round_up: give every rank the same number of samples by going on with the order's beginning, as a training
            needs it, whose ranks wait for each other. Where each sample is to count once (evaluation), say False: the
            last ranks may get one less.
        drop_last: give every rank the same number by leaving out the order's end; goes before ``round_up``.
        limit: how many samples of each epoch's order all ranks together see at most; None for all. What these are
            changes from epoch to epoch where the order does.
        order: how to shuffle. ``'randperm'`` draws a list of all indices, which takes 8 bytes for each; ``'feistel'``
            computes those that are asked for, see `runnerkit.data.permutation.Permutation`. By default the latter for
            data sets of more than 2**24 samples. A resumed run keeps what its checkpoint was saved with.

    Raises:
        ValueError: ``rank`` is not in ``[0, world_size)``, or ``order`` is none of the two.
    """

    def __init__(
        self,
        dataset: Sized,
        shuffle: bool = True,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        round_up: bool = True,
        drop_last: bool = False,
        limit: int | None = None,
        order: str | None = None,
    ) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(f'rank must be in [0, world_size), but got rank={rank} with world_size={world_size}')
        if order is not None and order not in ORDERS:
            known = ' or '.join(map(repr, ORDERS))
            raise WrongValue(f'order must be {known}, but got {order!r}{suggestion(str(order), ORDERS)}')
        self.length = len(dataset)
        self.shuffle = shuffle
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.round_up = round_up
        self.drop_last = drop_last
        self.limit = limit
        self.order = order or usual_order(self.length)
        self.epoch = 0
        #: The position of the order at which iterations begin, until another epoch is chosen.
        self.start = 0
        self._list: tuple[tuple[int, int], Any] | None = None  # of the epoch that was asked for last
        self._block: tuple[tuple[int, int], range, Any] | None = None  # the same, computed a little ahead

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch (0-based) of iterations that begin from now on."""
        if epoch != self.epoch:
            self.epoch, self.start = epoch, 0

    def __len__(self) -> int:
        return self.share_of(0)

    @property
    def end(self) -> int:
        """The position of the order at which an epoch ends."""
        return self.length if self.limit is None else min(self.limit, self.length)

    def share_of(self, start: int) -> int:
        """How many samples this rank gets of those from the position ``start`` on."""
        return share(max(0, self.end - start), self.rank, self.world_size, self.round_up, self.drop_last)

    def positions(self, start: int = 0) -> range:
        """The positions of this rank's samples from the position ``start`` on. Those beyond the order's end stand for
        its beginning (``round_up``)."""
        first = start + self.rank
        return range(first, first + self.share_of(start) * self.world_size, self.world_size)

    def consumed(self, start: int, samples: int) -> int:
        """The position of the order that all ranks have reached when each has had ``samples`` since ``start``."""
        whole = self.share_of(start)
        if samples < whole:
            return start + samples * self.world_size
        return max(self.end, start + whole * self.world_size) if self.round_up else self.end

    def begin(self, epoch: int) -> None:
        """A pass over ``epoch`` begins. Does nothing; a subclass may draw its order here."""

    def indices(self, epoch: int, positions: range) -> list[int]:
        """The samples at these positions of an epoch's order; a subclass with another order overrides this.

        It is asked for a batch at a time, or for a few thousand positions where no batches are made of them.
        """
        if not self.shuffle:
            return [position % self.length for position in positions]
        if self.order == 'feistel':
            return self._computed(epoch, positions)
        key = (epoch, self.seed)
        if self._list is None or self._list[0] != key:
            # As an array, whose slices cost a fifth of a tensor's.
            self._list = key, epoch_order(self.length, self.seed, epoch, order=self.order).numpy()
        order = self._list[1]
        if positions and positions[-1] < self.length:
            return order[positions.start : positions.stop : positions.step].tolist()
        return [int(order[position % self.length]) for position in positions]

    def _computed(self, epoch: int, positions: range) -> list[int]:
        """The samples at these positions of a permutation, and more of the same step: a hundred numbers cost the same
        as one."""
        if not positions:
            return []
        key, first, step = (epoch, self.seed), positions.start, positions.step
        known = range(0) if self._block is None or self._block[0] != key else self._block[1]
        if known.step != step or first not in known or positions[-1] not in known:
            from runnerkit.data.permutation import BLOCK, Permutation

            known = range(first, first + max(len(positions), BLOCK) * step, step)
            permutation = Permutation(self.length, mix_seed(self.seed, epoch))
            wrapped = np.arange(known.start, known.stop, step) % self.length
            self._block = key, known, permutation.indices(wrapped)
        start = known.index(first)
        return self._block[2][start : start + len(positions)].tolist()  # type: ignore[index] # it is there now

    def __iter__(self) -> Iterator[int]:
        # Epoch and start are read now and not at the first index: what is set later is for later iterations.
        return self._each(self.epoch, self.start)

    def _each(self, epoch: int, first: int) -> Iterator[int]:
        self.begin(epoch)
        positions = self.positions(first)
        for start in range(0, len(positions), _MANY):
            yield from self.indices(epoch, positions[start : start + _MANY])


class EpochBatchSampler(Sampler[SampleBatch]):
    """Batches of an `EpochSampler`'s indices. An epoch can be entered at any sample without touching those before.

    Args:
        sampler: whose epoch and start count.
        batch_size: samples a batch, at least 1.
        drop_last: leave out a last batch that is smaller.
    """

    def __init__(self, sampler: EpochSampler, batch_size: int, drop_last: bool = False) -> None:
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    @property
    def epoch(self) -> int:
        """The sampler's epoch, 0-based."""
        return self.sampler.epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch (0-based) of iterations that begin from now on."""
        self.sampler.set_epoch(epoch)

    def __len__(self) -> int:
        return self.batches_from(0)

    def batches_from(self, start: int) -> int:
        """How many batches this rank gets from the position ``start`` on."""
        whole, rest = divmod(self.sampler.share_of(start), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[SampleBatch]:
        # Epoch and start are read now and not at the first batch: what is set later is for later iterations.
        return self._batches(self.epoch, self.sampler.start)

    def _batches(self, epoch: int, start: int) -> Iterator[SampleBatch]:
        self.sampler.begin(epoch)
        positions = self.sampler.positions(start)
        for number in range(self.batches_from(start)):
            part = positions[number * self.batch_size : (number + 1) * self.batch_size]
            yield SampleBatch(self.sampler.indices(epoch, part), epoch, part)


class FirstBatches(Sampler[Any]):
    """The first batches of another library's batch sampler in each epoch.

    Attributes that are not found here are those of the wrapped batch sampler.

    Args:
        batch_sampler: gives lists of indices.
        number: how many of them at most.
    """

    def __init__(self, batch_sampler: Iterable[Any], number: int) -> None:
        self.batch_sampler = batch_sampler
        self.number = number

    def __getattr__(self, name: str) -> Any:
        if name.startswith('__') or 'batch_sampler' not in self.__dict__:  # while it is copied or unpickled
            raise AttributeError(name)
        return getattr(self.batch_sampler, name)

    def __len__(self) -> int:
        return min(self.number, len(self.batch_sampler))  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.batch_sampler), self.number)


class SeededBatchSampler(Sampler[SampleBatch]):
    """Another library's batch sampler, with its batches numbered and its randomness a function of (seed, epoch).

    Positions are counted through the epoch, the i-th sample of a rank being at ``i * world_size + rank``. Attributes
    that are not found here are those of the wrapped batch sampler.

    Args:
        batch_sampler: gives lists of indices. It sees to the ranks' shares itself.
        seed: the same on every rank, since many samplers draw one order for all ranks and take a share of it.
        rank: of this process.
        world_size: how many ranks there are.
    """

    def __init__(self, batch_sampler: Iterable[Any], seed: int, rank: int = 0, world_size: int = 1) -> None:
        self.batch_sampler = batch_sampler
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        #: How many batches iterations that begin from now on leave out; their indices are still drawn.
        self.start = 0
        #: What was chosen last, and the inner sampler's epoch at that time.
        self._epoch, self._inner_then = 0, self._inner_epoch()
        if isinstance(self._inner_then, int):
            self._epoch = self._inner_then

    def __getattr__(self, name: str) -> Any:
        if name.startswith('__') or 'batch_sampler' not in self.__dict__:  # while it is copied or unpickled
            raise AttributeError(name)
        return getattr(self.batch_sampler, name)

    @property
    def epoch(self) -> int:
        """What was chosen last, here or, by a hook that knows only that one, at the inner sampler."""
        inner = self._inner_epoch()
        # An epoch that does not move is some other thing of that name.
        return inner if isinstance(inner, int) and inner != self._inner_then else self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch (0-based) of iterations that begin from now on, here and in the samplers inside."""
        self._epoch = epoch
        inner: Any
        for inner in (self.batch_sampler, getattr(self.batch_sampler, 'sampler', None)):
            if hasattr(inner, 'set_epoch'):
                inner.set_epoch(epoch)
        self._inner_then = self._inner_epoch()

    def _inner_epoch(self) -> Any:
        return getattr(getattr(self.batch_sampler, 'sampler', None), 'epoch', None)

    def __len__(self) -> int:
        return len(self.batch_sampler)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[SampleBatch]:
        return self._batches(self.epoch, self.start)

    def _batches(self, epoch: int, start: int) -> Iterator[SampleBatch]:
        index_lists = seeded_iteration(self.batch_sampler, mix_seed(self.seed, epoch))
        seen = sum(len(indices) for indices in islice(index_lists, start))
        for indices in index_lists:
            begin, seen = seen, seen + len(indices)
            positions = range(begin * self.world_size + self.rank, seen * self.world_size + self.rank, self.world_size)
            yield SampleBatch(indices, epoch, positions)
