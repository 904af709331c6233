"""Ranks that share a loader: each sample of an evaluation comes once, and ranks that train on streams end a pass
together, since each step of one waits for the others."""

from __future__ import annotations

import logging
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from math import inf
from typing import Any, TypeVar

from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from runnerkit.data.checksum import batch_checksums
from runnerkit.data.kinds import dataset_of, describe_loader, is_unbounded, length_of, order_of
from runnerkit.data.loader import SeededLoader
from runnerkit.data.shares import Shares, first_items, is_torchs, knows_ranks, parts_of
from runnerkit.distributed import all_gather_objects, cpu_group, get_dist_info, reduce_extremes
from runnerkit.distributed.info import ranks_in_words
from runnerkit.utils.exceptions import ToldByFirstRank, WrongValue

T = TypeVar('T')

_END = object()

logger = logging.getLogger('runnerkit')


#: The loaders that were checked already: each warning is logged once.
_seen: weakref.WeakSet[Any] = weakref.WeakSet()


@contextmanager
def each_sample_once(loader: Any) -> Iterator[None]:
    """Let a pass over ``loader`` inside this context, on all ranks together, give every sample once.

    A share that was rounded up, as training needs it, is not there. Samples that torch's DistributedSampler repeats are
    told, once for each loader.
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
    if type(loader) is DataLoader and is_torchs(_drawn_from(loader)):
        warn_if_sampler_not_sharded(loader)
    if isinstance(sampler, DistributedSampler) and get_dist_info()[1] > 1:
        repeated = sampler.total_size - len(sampler.dataset)  # type: ignore[arg-type]  # it has a length there
        if repeated > 0 and _is_new(loader) and get_dist_info()[0] == 0:
            logger.warning(
                '%s: the DistributedSampler gives all ranks equally much, so that %d samples come twice, also in the '
                "metrics. runnerkit.data.build_dataloader's own sampler gives every sample of an evaluation once",
                describe_loader(loader),
                repeated,
            )
    yield


def warn_if_sampler_not_sharded(loader: Any) -> None:
    """Warn, once for each loader, if it gives all ranks the same samples, or each of them all of the data set.

    A collective for samplers whose classes are not torch's, unless they know of ranks.
    """
    world_size, whole = get_dist_info()[1], _drawn_from(loader)
    if world_size == 1 or whole is None or knows_ranks(whole, world_size) or _shares_of(loader) is not None:
        return
    found = [True] if is_torchs(whole) else first_items(whole)
    if found[0] is not None and len(set(found)) == 1 and _is_new(loader) and get_dist_info()[0] == 0:
        logger.warning(
            '%s: its sampler does not shard. Each of the %d ranks reads all samples, so an epoch has as many '
            'iterations as with one process. runnerkit.data.build_dataloader(…, sampler=…) shards them',
            describe_loader(loader),
            world_size,
        )


def check_pass(loader: Any, given: int) -> None:
    """Whether a pass over ``loader`` has given as many batches as its length says; streams may give fewer.

    One that has ended early is logged once, since a length may be an estimate.

    Args:
        loader: any iterable of batches.
        given: how many it has given.

    Raises:
        RuntimeError: it has ended early, and its samplers are torch's or ours, whose lengths are right.
    """
    length = length_of(loader)
    if length is None or given >= length or isinstance(dataset_of(loader), IterableDataset) or is_unbounded(loader):
        return
    text = (
        f'{describe_loader(loader)}: the pass ended after {given} of {length} batches. A StopIteration in a sample, a '
        'transform or collate_fn ends it, such as that of next() of an empty iterator; a loader of '
        'runnerkit.data.build_dataloader names the sample'
    )
    packages = {type(each).__module__.partition('.')[0] for each in (loader, *parts_of(_drawn_from(loader)))}
    if packages <= {'torch', 'torchdata', 'runnerkit', 'builtins'}:
        raise RuntimeError(text)
    if _is_new(loader):
        logger.warning('%s. If the loader is right, let its length be right', text)


def _drawn_from(loader: Any) -> Any:
    """The batch sampler or sampler of a DataLoader over a map-style data set; None for other loaders."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return None
    return loader.sampler if loader.batch_sampler is None else loader.batch_sampler


def _shares_of(loader: Any) -> Shares | None:
    """What shares out the items of a user's sampler or batch sampler in ``loader``; None if nothing does."""
    return next((each for each in parts_of(_drawn_from(loader)) if isinstance(each, Shares)), None)


def in_step(loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
    """This rank's ``batches`` of a pass over ``loader`` to train on, until the first rank has none left."""
    return _in_step(loader, batches) if may_have_unequal_lengths(loader) else batches


def _in_step(loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
    for given in count():
        batch = next_in_step(loader, batches, given, _END)
        if batch is _END:
            return
        yield batch


def next_in_step(loader: Any, batches: Iterator[Any], given: int, end: T) -> Any | T:
    """Return the next of ``batches``, or ``end`` if any rank has none left. A small collective on the CPU.

    Args:
        loader: where they come from; one for which `may_have_unequal_lengths` holds.
        batches: this rank's.
        given: how many this rank has had of the pass.
        end: returned in place of a batch.
    """
    batch, rank = next(batches, end), get_dist_info()[0]
    first, last = reduce_extremes(rank if batch is end else inf, cpu_group())
    if first == inf:
        if given == 0:
            warn_if_not_sharded(loader, batch_checksums(batch))
        return batch
    if last == inf and rank == 0:
        logger.warning(
            '%s: rank %d has no more batches after %d, so the pass ends on all ranks, which train in step. What others '
            'have left of it is not trained on: give all ranks equally much, or say max_batches',
            describe_loader(loader),
            first,
            given,
        )
    return end


def may_have_unequal_lengths(loader: Any) -> bool:
    """Whether ranks may get unequal numbers of batches of ``loader`` that are unknown before: a stream that rank 0 does
    not read for all, or a loader without a length."""
    if get_dist_info()[1] == 1 or is_unbounded(loader):
        return False
    return length_of(loader) is None or isinstance(dataset_of(loader), IterableDataset)


def warn_if_not_sharded(loader: Any, checksums: Mapping[str, Sequence[int]]) -> None:
    """Warn if ranks have the same first batch of a stream: then each of them reads all of it. A collective, once for
    each loader.

    Args:
        loader: one for which `may_have_unequal_lengths` holds.
        checksums: of this rank's first batch; none if it has no batch.
    """
    if not _is_new(loader):
        return
    seen = all_gather_objects(tuple((place, sums[0]) for place, sums in checksums.items()))
    same = [found for found, number in Counter(seen).items() if found and number > 1]
    if same and get_dist_info()[0] == 0:
        logger.warning(
            '%s: the ranks %s have the same first batch. Each of them seems to read the whole stream, so that its '
            'samples come once for each rank: let the data set take its share, by torch.distributed.get_rank() and '
            'get_world_size() (and the worker by torch.utils.data.get_worker_info())',
            describe_loader(loader),
            ', '.join(str(i) for i, found in enumerate(seen) if found in same),
        )


def _is_new(loader: Any) -> bool:
    """Whether ``loader`` is seen for the first time; False where it cannot be remembered."""
    try:
        is_new = loader not in _seen
        _seen.add(loader)
    except TypeError:
        return False
    return is_new


def agree_on_length(loader: Any, entry: Any) -> None:
    """Let all ranks know the same length of ``loader``, on which their schedules depend. A collective.

    A `SeededLoader` of a stream whose lengths differ is limited to the smallest, with a warning.

    Args:
        loader: to train on.
        entry: that of the workflow, for the message.

    Raises:
        ValueError: on rank 0: the lengths differ, and the loader is of another kind.
        ToldByFirstRank: on the others.
    """
    rank, world_size = get_dist_info()
    if world_size == 1:
        return
    length = length_of(loader)
    fewest, most = reduce_extremes(-1 if length is None else length)
    if fewest == most:
        return
    is_stream = isinstance(loader, SeededLoader) and isinstance(loader.dataset, IterableDataset)
    # All ranks have to raise where one does.
    if fewest < 0 or reduce_extremes(is_stream)[0] == 0:
        _refuse_lengths(loader, entry, length)
    loader.max_batches = int(fewest)
    if rank == 0:
        logger.warning(
            '%s: the ranks have between %d and %d batches. The passes of all ranks, which train in step, end after %d',
            describe_loader(loader),
            fewest,
            most,
            fewest,
        )


def _refuse_lengths(loader: Any, entry: Any, length: int | None) -> None:
    """Say which ranks have how much of ``loader``. A collective."""
    found = 'no length' if length is None else f'{length} batches'
    dataset = dataset_of(loader)
    if length is not None and not isinstance(dataset, IterableDataset) and hasattr(dataset, '__len__'):
        found += f' (its data set has {len(dataset)} samples)'
    ranks: dict[str, list[int]] = {}
    for rank, text in enumerate(all_gather_objects(found)):
        ranks.setdefault(text, []).append(rank)
    if get_dist_info()[0] > 0:
        raise ToldByFirstRank('the ranks have unequally long data loaders, as rank 0 says')
    raise WrongValue(
        f'the data loader of the workflow entry {tuple(entry)} has '
        f'{", ".join(f"{text} on {ranks_in_words(having)}" for text, having in ranks.items())}. The ranks train in '
        'step, and would wait for each other for ever: give all ranks the same data set, shared equally as '
        'runnerkit.data.build_dataloader does, or the same max_batches'
    )
