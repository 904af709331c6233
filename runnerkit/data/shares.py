"""Each rank its share of samplers and batch samplers that know of no ranks: torch's WeightedRandomSampler, a user's."""

from __future__ import annotations

import copy
import logging
import zlib
from collections.abc import Iterable, Iterator
from itertools import cycle, islice
from typing import Any, NamedTuple

from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from runnerkit.data.kinds import length_of
from runnerkit.data.loader_state import LoaderState
from runnerkit.data.sampler import EpochSampler, SeededBatchSampler, share
from runnerkit.data.seeding import mix_seed, seeded_iteration
from runnerkit.data.walk import Around, kind_of
from runnerkit.distributed import all_gather_objects, broadcast_object, get_dist_info, run_on_all_ranks

#: torch's classes that know of no ranks.
_SAMPLERS = (RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler)

#: So many items of an order are drawn at once, and so many are compared.
_BLOCK, _COMPARED = 64, 1024

logger = logging.getLogger('runnerkit')


class DrawnSampler(EpochSampler):
    """A rank's share of the order that one of torch's samplers draws for each epoch, as a function of (seed, epoch).

    Args:
        whole: the sampler; it draws the order of an epoch at once, and has a length.
        options: of an `EpochSampler`: ``seed``, ``rank``, ``world_size``, ``round_up``, ``drop_last``.
    """

    def __init__(self, whole: Any, **options: Any) -> None:
        super().__init__(whole, **options)
        self.whole = whole
        self._drawn: tuple[int | None, list[Any]] = None, []  # of the epoch that was asked for last

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch (0-based) of iterations that begin from now on, also of the sampler inside."""
        super().set_epoch(epoch)
        set_inner_epoch(self.whole, epoch)

    def begin(self, epoch: int) -> None:
        """Draw the order of ``epoch``."""
        self._drawn = epoch, list(drawn(self.whole, self.seed, epoch))
        self.length = len(self._drawn[1])

    def indices(self, epoch: int, positions: range) -> list[Any]:
        """The samples at these positions of an epoch's order, which is drawn again if another pass drew its own."""
        if self._drawn[0] != epoch:
            self.begin(epoch)
        return [self._drawn[1][position % self.length] for position in positions]


class Shares(Around, Sampler[Any]):
    """A rank's share of what a sampler or batch sampler gives: of ``world_size`` items in a row, one for each rank.

    Every rank draws all items, as a function of (seed, epoch). Attributes that are not found here are ``whole``'s.

    Args:
        whole: gives indices or lists of them, the same on all ranks; it may be endless, and lack a length.
        seed: the same on every rank.
        rank: of this process.
        world_size: how many ranks there are.
        round_up: let a last row that is too short go on with the first one, so that all ranks get equally many.
        drop_last: leave it out; goes before ``round_up``.
    """

    def __init__(
        self,
        whole: Iterable[Any],
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        round_up: bool = True,
        drop_last: bool = False,
    ) -> None:
        self.whole = whole
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.round_up = round_up
        self.drop_last = drop_last
        self.epoch = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith('__') or 'whole' not in self.__dict__:  # while it is copied or unpickled
            raise AttributeError(name)
        return getattr(self.whole, name)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch (0-based) of iterations that begin from now on, also of the sampler inside."""
        self.epoch = epoch
        set_inner_epoch(self.whole, epoch)

    def __len__(self) -> int:
        return share(len(self.whole), self.rank, self.world_size, self.round_up, self.drop_last)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        return self._each(self.epoch)  # what is set later is for later iterations

    def _each(self, epoch: int) -> Iterator[Any]:
        items = drawn(self.whole, self.seed, epoch)
        first: list[Any] = []
        while row := list(islice(items, self.world_size)):
            first, missing = first or row, self.world_size - len(row)
            if missing and self.drop_last:
                return
            if missing and self.round_up:
                row += list(islice(cycle(first), missing))
            if self.rank < len(row):
                yield row[self.rank]


def set_inner_epoch(sampler: Any, epoch: int) -> None:
    """Call the ``set_epoch`` of ``sampler``, if it has one."""
    if hasattr(sampler, 'set_epoch'):
        sampler.set_epoch(epoch)


def drawn(sampler: Iterable[Any], seed: int, epoch: int) -> Iterator[Any]:
    """What ``sampler`` gives, with what it draws from the process's generators a function of (seed, epoch).

    The run's own streams do not move. It is drawn a few items at a time.
    """
    return seeded_iteration(sampler, mix_seed(seed, epoch), _BLOCK)


def shared_out(sampler: Any, samples: int, context: dict[str, Any], is_built: bool = False) -> Any:
    """A rank's share of ``sampler``, a sampler or batch sampler; itself if it gives each rank something else already.

    A collective for classes that are not torch's, unless ``context`` is of other ranks than this process's.

    Args:
        sampler: the same on all ranks.
        samples: how many the data set has.
        context: the arguments of `Shares`, and others.
        is_built: whether it was made of a config, so that nothing else holds it. One of torch's then has the same order
            on a single rank, and a run can go on with another number of them.
    """
    rank, world_size = context['rank'], context['world_size']
    # Without its own generator, whose state a resume would restore before the order is drawn.
    is_pure = type(sampler) in _SAMPLERS and getattr(sampler, 'generator', None) is None
    if (world_size == 1 and not (is_built and is_pure)) or knows_ranks(sampler, world_size):
        return sampler
    options = {key: context[key] for key in ('seed', 'rank', 'world_size', 'round_up', 'drop_last')}
    if world_size > 1 and (rank, world_size) == get_dist_info() and not _are_same(sampler, samples, world_size):
        return sampler
    return DrawnSampler(sampler, **options) if is_pure else Shares(sampler, **options)


def parts_of(sampler: Any) -> Iterator[Any]:
    """``sampler``, and the samplers in it."""
    while sampler is not None:
        yield sampler
        has = getattr(sampler, '__dict__', {})
        sampler = next((has[name] for name in ('batch_sampler', 'sampler', 'whole') if has.get(name) is not None), None)


def knows_ranks(sampler: Any, world_size: int) -> bool:
    """Whether a sampler or batch sampler says that it gives each of ``world_size`` ranks its share: it, or a sampler in
    it, has a ``rank``, and a ``world_size`` or ``num_replicas`` that is this number."""
    for each in parts_of(sampler):
        if isinstance(each, SeededBatchSampler):  # which numbers samples, and shares out none
            continue
        has = getattr(each, '__dict__', {})
        ranks = [has[name] for name in ('num_replicas', 'world_size', '_num_replicas', '_world_size') if name in has]
        if world_size in ranks and ('rank' in has or '_rank' in has):
            return True
    return False


def is_torchs(sampler: Any) -> bool:
    """Whether a sampler or batch sampler is made of nothing but torch's classes that know of no ranks."""
    return all(type(each) in (*_SAMPLERS, BatchSampler) for each in parts_of(sampler))


class First(NamedTuple):
    """What a rank's sampler gives first.

    Attributes:
        checksum: of its first items.
        samples: how many indices it gives in all, estimated where there are many; 0 if that is unknown.
    """

    checksum: int
    samples: int


def first_items(sampler: Any) -> list[First | None]:
    """What each rank's ``sampler`` gives first: the samplers do not move. A collective.

    None is a sampler that cannot be compared, since it holds a live iterator.
    """

    def look() -> First | None:
        state = LoaderState(sampler)
        if kind_of(sampler).is_iterator or state.changed():
            return None
        before = state.states()
        try:
            items = list(islice(drawn(copy.copy(sampler), 0, 0), _COMPARED))
        finally:
            state.restore(before)
        samples = sum(len(item) if isinstance(item, list) else 1 for item in items)
        if len(items) == _COMPARED:
            samples = samples * (length_of(sampler) or 0) // _COMPARED
        return First(zlib.crc32(repr(items).encode()), samples)

    return all_gather_objects(run_on_all_ranks(look))


def _are_same(sampler: Any, samples: int, world_size: int) -> bool:
    """Whether to share out what ``sampler`` gives; rank 0 logs what was found. A collective, where one is needed."""
    held = LoaderState(sampler)
    generators = held.generators()
    if is_torchs(sampler) and not generators:
        return True
    name, keep = type(sampler).__name__, 'give it the attributes rank and world_size'
    found = first_items(sampler)
    first = found[0]  # by which all ranks go, since they have to do the same
    if first is None or None in found:
        _log(
            logging.WARNING,
            f'{name} holds a live iterator, so the ranks cannot compare what it gives. Each of its items goes to one '
            f'rank. If it gives each rank its share already, {keep}',
        )
        return True
    if len(set(found)) == 1:
        _log(logging.INFO, f'{name} knows of no ranks: each of its items goes to one of them')
        return True
    gives_all = 2 * first.samples * world_size > samples * (world_size + 1)  # more like all of them than like a share
    if gives_all:
        own = held.states()
        of_first = broadcast_object(own)
        held.restore({place: each for place, each in of_first.items() if place in generators})
        if len(set(first_items(sampler))) == 1:
            _log(
                logging.WARNING,
                f'{name}: its generators ({", ".join(generators)}) differ between ranks. All ranks take the state of '
                'rank 0, and each item goes to one rank: seed them alike',
            )
            return True
        held.restore(own)
    text = (
        f'{name} gives each rank other indices ({first.samples or "an unknown number"} on rank 0, of {samples} '
        'samples): it is not shared out again'
    )
    if gives_all:
        text += f'. To share it out, draw the same on all ranks; to keep it so, {keep}'
    _log(logging.WARNING if gives_all else logging.INFO, text)
    return False


def _log(level: int, text: str) -> None:
    if get_dist_info()[0] == 0:
        logger.log(level, '%s', text)
