"""Ranks that share a loader: each item of a sampler goes to one of them, each sample of an evaluation comes once, and
ranks that train on streams end a pass together."""

from __future__ import annotations

import copy
import logging
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count, cycle, islice, takewhile
from math import inf
from typing import Any, TypeVar

from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, Sampler

from runnerkit.data.kinds import (
    UNSHARDED,
    describe_loader,
    is_new,
    length_of,
    may_have_unequal_lengths,
    nested_samplers,
    order_of,
    samplers_of,
)
from runnerkit.data.loader import SeededLoader
from runnerkit.data.loader_state import batch_checksums, held_by, held_states, is_generator, restore_held
from runnerkit.data.sampler import EpochSampler, SeededBatchSampler, share
from runnerkit.data.seeding import mix_seed, seeded_iteration
from runnerkit.distributed import (
    all_gather_objects,
    broadcast_object,
    cpu_group,
    get_dist_info,
    reduce_extremes,
    run_on_all_ranks,
)
from runnerkit.distributed.groups import ranks_in_words
from runnerkit.utils.exceptions import ToldByFirstRank, WrongValue

#: So many items of an order are drawn at once, and so many are compared.
_BLOCK, _COMPARED = 64, 1024

T = TypeVar('T')

_END = object()

logger = logging.getLogger('runnerkit')


# --- samplers that know of no ranks ----------------------------------------------------------------------------------


class DrawnSampler(EpochSampler):
    """A rank's share of the order that one of torch's samplers, ``whole``, draws for each epoch, as a function of
    (seed, epoch)."""

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


class Shares(Sampler[Any]):
    """A rank's share of what a sampler or batch sampler gives: of ``world_size`` items in a row, one for each rank.

    Every rank draws all items, as a function of (seed, epoch). With ``round_up`` a last row that is too short continues
    with the first one, with ``drop_last`` it is left out. Attributes that are not found here are those of ``whole``.
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
    """What ``sampler`` gives, drawn a few items at a time with the process's generators a function of (seed, epoch)."""
    return seeded_iteration(sampler, mix_seed(seed, epoch), _BLOCK)


def shared_out(sampler: Any, samples: int, context: dict[str, Any], is_built: bool = False) -> Any:
    """A rank's share of ``sampler``, a sampler or batch sampler of ``samples`` samples; itself if it gives each rank
    something else already. A collective for classes that are not torch's, unless ``context`` is of other ranks.

    One of torch's that was built from a config (``is_built``), so that nothing else holds it, has the same order on a
    single rank, and a run can go on with another number of them.
    """
    rank, world_size = context['rank'], context['world_size']
    # Without its own generator, whose state a resume would restore before the order is drawn.
    is_pure = type(sampler) in UNSHARDED and getattr(sampler, 'generator', None) is None
    if (world_size == 1 and not (is_built and is_pure)) or knows_ranks(sampler, world_size):
        return sampler
    options = {key: context[key] for key in ('seed', 'rank', 'world_size', 'round_up', 'drop_last')}
    if world_size > 1 and (rank, world_size) == get_dist_info() and not _are_same(sampler, samples, world_size):
        return sampler
    return DrawnSampler(sampler, **options) if is_pure else Shares(sampler, **options)


def knows_ranks(sampler: Any, world_size: int) -> bool:
    """Whether a sampler or batch sampler says that it gives each of ``world_size`` ranks its share: it, or a sampler in
    it, has a ``rank``, and a ``world_size`` or ``num_replicas`` that is this number."""
    for each in nested_samplers(sampler):
        if isinstance(each, SeededBatchSampler):  # which numbers samples, and shares out none
            continue
        has = getattr(each, '__dict__', {})
        ranks = [has[name] for name in ('num_replicas', 'world_size', '_num_replicas', '_world_size') if name in has]
        if world_size in ranks and ('rank' in has or '_rank' in has):
            return True
    return False


def is_torchs(sampler: Any) -> bool:
    """Whether a sampler or batch sampler is made of nothing but torch's classes that do not shard."""
    return all(type(each) in (*UNSHARDED, BatchSampler) for each in nested_samplers(sampler))


def first_items(sampler: Any) -> list[tuple[int, int] | None]:
    """Of each rank's ``sampler``, which does not move: a checksum of what it gives first, and how many indices it gives
    in all, estimated where there are many (0: unknown). None: it holds a live iterator. A collective."""

    def look() -> tuple[int, int] | None:
        if any(hasattr(each, '__next__') for each in (sampler, *getattr(sampler, '__dict__', {}).values())):
            return None
        before = held_states(sampler)
        try:
            items = list(islice(drawn(copy.copy(sampler), 0, 0), _COMPARED))
        finally:
            restore_held(sampler, before)
        samples = sum(len(item) if isinstance(item, list) else 1 for item in items)
        if len(items) == _COMPARED:
            samples = samples * (length_of(sampler) or 0) // _COMPARED
        return zlib.crc32(repr(items).encode()), samples

    return all_gather_objects(run_on_all_ranks(look))


def _are_same(sampler: Any, samples: int, world_size: int) -> bool:
    """Whether to share out what ``sampler`` gives; rank 0 logs what was found. A collective, where one is needed."""
    generators = [place for place, value in held_by(sampler).items() if is_generator(value)]
    if is_torchs(sampler) and not generators:
        return True
    name, keep = type(sampler).__name__, 'give it the attributes rank and world_size'
    firsts = first_items(sampler)
    first = firsts[0]  # by which all ranks go, since they have to do the same
    if first is None or None in firsts:
        _log(
            f'{name} holds a live iterator, so the ranks cannot compare what it gives. Each of its items goes to one '
            f'rank. If it gives each rank its share already, {keep}'
        )
        return True
    if len(set(firsts)) == 1:
        _log(f'{name} gives every process the same items, so each process takes its share of them', logging.INFO)
        return True
    gives_all = 2 * first[1] * world_size > samples * (world_size + 1)  # more like all of them than like a share
    if gives_all:
        own = held_states(sampler)
        of_first = broadcast_object(own)
        restore_held(sampler, {place: of_first[place] for place in generators if place in of_first})
        if len(set(first_items(sampler))) == 1:
            _log(
                f'{name}: its generators ({", ".join(generators)}) differ between ranks. All ranks take the state of '
                'rank 0, and each item goes to one rank: seed them alike'
            )
            return True
        restore_held(sampler, own)
    way_out = f'. To share it out, draw the same on all ranks; to keep it so, {keep}' if gives_all else ''
    _log(
        f'{name} gives each rank other indices ({first[1] or "an unknown number"} on rank 0, of {samples} samples): it '
        f'is not shared out again{way_out}',
        logging.WARNING if gives_all else logging.INFO,
    )
    return False


def _log(text: str, level: int = logging.WARNING) -> None:
    if get_dist_info()[0] == 0:
        logger.log(level, '%s', text)


@contextmanager
def each_sample_once(loader: Any) -> Iterator[None]:
    """Let a pass over ``loader`` inside this context, on all ranks together, give every sample once.

    A share that was rounded up, as training needs it, is not there. Warn, once for each loader, about samples that
    torch's DistributedSampler repeats.
    """
    order, sampler = order_of(loader), getattr(loader, 'sampler', None)
    shared: Any = _shares_of(loader) if order is None else order.sampler
    if shared is not None and shared.world_size > 1 and shared.round_up:
        shared.round_up = False
        try:
            yield
        finally:
            shared.round_up = True
        return
    if type(loader) is DataLoader and is_torchs(next(samplers_of(loader), None)):
        warn_if_sampler_not_sharded(loader)
    if isinstance(sampler, DistributedSampler) and get_dist_info()[1] > 1:
        repeated = sampler.total_size - len(sampler.dataset)  # type: ignore[arg-type]  # it has a length there
        if repeated > 0 and is_new(loader):
            _log(
                f'{describe_loader(loader)}: the DistributedSampler gives all ranks equally much, so that {repeated} '
                "samples come twice, also in the metrics. runnerkit.data.build_dataloader's own sampler gives every "
                'sample of an evaluation once'
            )
    yield


def warn_if_sampler_not_sharded(loader: Any) -> None:
    """Warn, once for each loader, if it gives all ranks the same samples, or each of them all of the data set.

    A collective for samplers whose classes are not torch's, unless they know of ranks.
    """
    world_size, whole = get_dist_info()[1], next(samplers_of(loader), None)
    if world_size == 1 or whole is None or knows_ranks(whole, world_size) or _shares_of(loader) is not None:
        return
    firsts = [True] if is_torchs(whole) else first_items(whole)
    if firsts[0] is not None and len(set(firsts)) == 1 and is_new(loader):
        _log(
            f'{describe_loader(loader)}: its sampler does not shard. Each of the {world_size} ranks reads all samples, '
            'so an epoch has as many iterations as with one process. runnerkit.data.build_dataloader(…, sampler=…) '
            'shards them'
        )


def _shares_of(loader: Any) -> Shares | None:
    """What shares out the items of a user's sampler or batch sampler in ``loader``; None if nothing does."""
    return next((each for each in samplers_of(loader) if isinstance(each, Shares)), None)


# --- ranks in step ---------------------------------------------------------------------------------------------------


def until_shortest_rank(loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
    """This rank's ``batches`` of a pass over ``loader`` to train on, until the first rank has none left."""
    if not may_have_unequal_lengths(loader):
        return batches
    in_step = (next_in_step(loader, batches, given, _END) for given in count())
    return takewhile(lambda batch: batch is not _END, in_step)


def next_in_step(loader: Any, batches: Iterator[Any], given: int, end: T) -> Any | T:
    """The next of this rank's ``batches``, of which it had ``given``; ``end`` if any rank has none left. A small
    collective on the CPU, for loaders for which `may_have_unequal_lengths` holds."""
    batch, rank = next(batches, end), get_dist_info()[0]
    first, last = reduce_extremes(rank if batch is end else inf, cpu_group())
    if first == inf:
        if given == 0:
            warn_if_not_sharded(loader, batch)
        return batch
    if last == inf:
        _log(
            f'{describe_loader(loader)}: rank {int(first)} has no more batches after {given}, so the pass ends on all '
            'ranks, which train in step. What others have left of it is not trained on: give all ranks equally much, '
            'or say max_batches'
        )
    return end


def warn_if_not_sharded(loader: Any, batch: Any) -> None:
    """Warn if ranks have the same first ``batch`` (None: it has none) of a stream: then each of them reads all of it. A
    collective, once for each loader."""
    if not is_new(loader):
        return
    firsts = all_gather_objects(tuple(batch_checksums(batch).items()))
    same = [first for first, number in Counter(firsts).items() if first and number > 1]
    if same:
        ranks = ', '.join(str(rank) for rank, each in enumerate(firsts) if each in same)
        _log(
            f'{describe_loader(loader)}: the ranks {ranks} have the same first batch. Each of them seems to read the '
            'whole stream, so that its samples come once for each rank: let the data set take its share, by '
            'torch.distributed.get_rank() and get_world_size() (and the worker by '
            'torch.utils.data.get_worker_info())'
        )


def agree_on_length(loader: Any, entry: Any) -> None:
    """Let all ranks know the same length of ``loader``, that of the workflow's ``entry``, on which their schedules
    depend. A `SeededLoader` of a stream is limited to the smallest, with a warning. A collective.
    """
    length = length_of(loader)
    fewest, most = reduce_extremes(-1 if length is None else length)
    if fewest == most:
        return
    is_stream = isinstance(loader, SeededLoader) and isinstance(loader.dataset, IterableDataset)
    # All ranks have to raise where one does.
    if fewest < 0 or reduce_extremes(is_stream)[0] == 0:
        raise _unequal_lengths(loader, entry, length)
    loader.max_batches = int(fewest)
    _log(
        f'{describe_loader(loader)}: the ranks have between {int(fewest)} and {int(most)} batches. The passes of all '
        f'ranks, which train in step, end after {int(fewest)}'
    )


def _unequal_lengths(loader: Any, entry: Any, length: int | None) -> Exception:
    """The error that says which ranks have how much of ``loader``. A collective."""
    found = 'no length' if length is None else f'{length} batches'
    dataset: Any = getattr(loader, 'dataset', None)
    if length is not None and not isinstance(dataset, IterableDataset) and hasattr(dataset, '__len__'):
        found += f' (its data set has {len(dataset)} samples)'
    ranks: dict[str, list[int]] = {}
    for rank, text in enumerate(all_gather_objects(found)):
        ranks.setdefault(text, []).append(rank)
    if get_dist_info()[0] > 0:
        return ToldByFirstRank('the ranks have unequally long data loaders, as rank 0 says')
    return WrongValue(
        f'the data loader of the workflow entry {tuple(entry)} has '
        f'{", ".join(f"{text} on {ranks_in_words(having)}" for text, having in ranks.items())}. The ranks train in '
        'step, and would wait for each other for ever: give all ranks the same data set, shared equally as '
        'runnerkit.data.build_dataloader does, or the same max_batches'
    )
