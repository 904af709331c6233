"""Facts about loaders of any kind, as far as a run needs them."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from runnerkit.data.loader import SeededLoader
from runnerkit.data.sampler import EpochBatchSampler, EpochSampler
from runnerkit.data.seeding import TORCHS_COLLATE, is_pure
from runnerkit.distributed.groups import get_dist_info
from runnerkit.utils.user_files import is_ours

#: The end of most messages about loaders.
BUILD_DATALOADER_HINT = 'runnerkit.data.build_dataloader makes a loader that is exact'

#: torch's samplers that do not shard.
UNSHARDED = (RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler)

logger = logging.getLogger('runnerkit')


def order_of(loader: Any) -> EpochBatchSampler | None:
    """The order of a loader whose sampler is an `EpochSampler`, in batches of one size; else None."""
    if not isinstance(loader, DataLoader) or not isinstance(loader.sampler, EpochSampler):
        return None
    if not (can_skip_indices(loader) or is_seeded_map(loader)):
        return None
    batching, sampler = loader.batch_sampler, loader.sampler
    if getattr(batching, 'sampler', None) is not sampler:
        return None
    if type(batching) is BatchSampler:
        return EpochBatchSampler(sampler, batching.batch_size, batching.drop_last)
    return batching if isinstance(batching, EpochBatchSampler) else None


def is_in_order(loader: Any) -> bool:
    """Whether ``loader`` is torch's own, without shuffling: its order follows from nothing else."""
    if not can_skip_indices(loader) or type(loader.sampler) is not SequentialSampler:
        return False
    batching = loader.batch_sampler
    return batching is None or (type(batching) is BatchSampler and batching.sampler is loader.sampler)


def epoch_sampler_of(loader: Any) -> EpochSampler | None:
    """The `EpochSampler` of which a loader makes its batches, in whatever way; None if there is none."""
    samplers = (getattr(loader, 'sampler', None), getattr(getattr(loader, 'batch_sampler', None), 'sampler', None))
    return next((each for each in samplers if isinstance(each, EpochSampler)), None)


def loader_facts(loader: Any) -> dict[str, Any]:
    """What a resumed run compares of its loader."""
    order, dataset = order_of(loader), getattr(loader, 'dataset', None)
    batching = getattr(loader, 'batch_sampler', None)
    facts = {
        'kind': type(loader).__name__,
        'dataset': None if dataset is None else type(dataset).__name__,
        'length': None if dataset is None else length_of(dataset),
        'batch_size': getattr(loader, 'batch_size', None) or getattr(batching, 'batch_size', None),
        'batches': length_of(loader),
        'workers': getattr(loader, 'num_workers', None),
    }
    if is_unbounded(loader):
        facts['is_stream'] = True
    sampler = epoch_sampler_of(loader)
    if sampler is not None:
        facts['order'] = sampler.order
    if order is not None:
        facts.update(world_size=order.sampler.world_size, seed=order.sampler.seed, shuffle=bool(order.sampler.shuffle))
    return facts


def set_epoch(loader: Any, epoch: int) -> None:
    """Set the epoch (0-based) that comes next in ``loader``, its samplers and an iterable data set, in each once."""
    dataset, batch_sampler = getattr(loader, 'dataset', None), getattr(loader, 'batch_sampler', None)
    parts = [loader, getattr(loader, 'sampler', None), batch_sampler, getattr(batch_sampler, 'sampler', None)]
    parts += [dataset] if isinstance(dataset, IterableDataset) else []
    for part in {id(part): part for part in parts if hasattr(part, 'set_epoch')}.values():
        part.set_epoch(epoch)


def is_cheap_to_enter(loader: Any) -> bool:
    """Whether an epoch of ``loader`` can be entered in its middle without loading what lies before."""
    return is_seeded_map(loader) or can_skip_indices(loader)


def length_of(loader: Any) -> int | None:
    """How many batches ``loader`` gives in one pass; None where it cannot tell."""
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None


def is_empty(loader: Any) -> bool:
    """Whether ``loader`` gives no batches, on no rank: of few samples, some have an empty share of an evaluation."""
    if length_of(loader) != 0:
        return False
    order = order_of(loader)
    return order is None or order.drop_last or order.sampler.drop_last or order.sampler.end == 0


def is_limited(loader: Any) -> bool:
    """Whether ``max_batches`` ends the passes over ``loader``, see `runnerkit.data.build_dataloader`."""
    limit = getattr(loader, 'max_batches', None)
    return limit is not None and length_of(loader) == limit


def has_state(loader: Any) -> bool:
    """Whether ``loader`` keeps its place itself (torchdata's do, and streams)."""
    return is_stateful(loader) and not isinstance(loader, SeededLoader)


def is_unbounded(loader: Any) -> bool:
    """Whether ``loader`` reads a stream, which has one pass; its end is the run's."""
    return bool(getattr(loader, 'is_unbounded', False))


def workers_live(loader: Any) -> bool:
    """Whether ``loader`` has workers that wait for its next pass."""
    return bool(getattr(loader, 'persistent_workers', False)) and getattr(loader, '_iterator', None) is not None


def draws_in_workers(loader: Any) -> bool:
    """Whether workers of ``loader`` may draw random numbers that no checkpoint holds."""
    if not isinstance(loader, DataLoader) or isinstance(loader, SeededLoader) or not loader.num_workers:
        return False
    return not (is_pure(loader.dataset) and loader.collate_fn in TORCHS_COLLATE)


def describe_loader(loader: Any) -> str:
    """``loader`` in a message: its class, and that of its data set."""
    dataset = getattr(loader, 'dataset', None)
    return type(loader).__name__ if dataset is None else f'{type(loader).__name__} of {type(dataset).__name__}'


def fetches_again(loader: Any) -> bool:
    """Whether a batch is the same one when it is fetched again, after the process's generators have moved on."""
    if isinstance(loader, (SeededLoader, Sequence)) or is_unbounded(loader):
        return True
    return can_skip_indices(loader) and is_pure(loader.dataset) and unknown_sampler(loader) is None


def is_seeded_map(loader: Any) -> bool:
    """Whether ``loader`` is ours, over a map-style data set."""
    return isinstance(loader, SeededLoader) and not isinstance(loader.dataset, IterableDataset)


def can_skip_indices(loader: Any) -> bool:
    """Whether ``loader`` does nothing but torch's own iteration over a map-style data set."""
    return (
        isinstance(loader, DataLoader)
        and type(loader).__iter__ is DataLoader.__iter__
        and type(loader)._get_iterator is DataLoader._get_iterator
        and not isinstance(loader.dataset, IterableDataset)
    )


# --- samplers --------------------------------------------------------------------------------------------------------


def samplers_of(loader: Any) -> Iterator[Any]:
    """The samplers from which a DataLoader over a map-style data set draws, those inside others included."""
    if isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset):
        yield from nested_samplers(loader.sampler if loader.batch_sampler is None else loader.batch_sampler)


def nested_samplers(sampler: Any) -> Iterator[Any]:
    """``sampler``, and the samplers in it."""
    while sampler is not None:
        yield sampler
        _, sampler = inner_sampler(sampler)


def inner_sampler(sampler: Any) -> tuple[str, Any]:
    """The sampler in ``sampler``, after the name of its attribute; None if there is none."""
    has = getattr(sampler, '__dict__', {})
    names = ('batch_sampler', 'sampler', 'whole')
    return next(((name, has[name]) for name in names if has.get(name) is not None), ('', None))


def unknown_sampler(loader: Any) -> Any:
    """A sampler of ``loader`` that may remember what no checkpoint holds: it is neither torch's nor ours, and has no
    ``state_dict``."""
    known = (*UNSHARDED, BatchSampler, DistributedSampler)
    for sampler in samplers_of(loader):
        is_known = type(sampler) in known or isinstance(sampler, EpochSampler) or is_ours(type(sampler).__module__)
        if not (is_known or is_stateful(sampler) or isinstance(sampler, Sequence)):
            return sampler
    return None


# --- exactness -------------------------------------------------------------------------------------------------------


def is_stateful(value: Any) -> bool:
    """Whether ``value`` gives its state and takes it back."""
    return callable(getattr(value, 'state_dict', None)) and callable(getattr(value, 'load_state_dict', None))


def doubts_about(loader: Any, is_inside: bool = True) -> list[str]:
    """What a resumed run may not restore of ``loader``; ``is_inside``: within a pass."""
    texts = []
    if is_inside and draws_in_workers(loader):
        texts.append(
            f'random numbers that {type(loader.dataset).__name__} or collate_fn draw in workers change after a resume '
            f'inside an epoch; {BUILD_DATALOADER_HINT}'
        )
    if not (isinstance(loader, (Sequence, SeededLoader)) or has_state(loader) or can_skip_indices(loader)):
        texts.append(
            'a resumed run loads the batches of an open epoch again up to its place, which takes as long as in '
            'training. It is exact only if they depend on nothing that earlier batches changed; '
            f'{BUILD_DATALOADER_HINT}, for map-style data sets'
        )
    elif can_skip_indices(loader) and (sampler := unknown_sampler(loader)) is not None:
        texts.append(
            f'a resumed run draws the order of {type(sampler).__name__} again up to its place. It is exact only if the '
            f'order depends on nothing that earlier draws changed; give {type(sampler).__name__} state_dict() and '
            'load_state_dict(), or build the loader with runnerkit.data.build_dataloader'
        )
    return [f'{describe_loader(loader)}: {text}' for text in texts]


# --- passes ----------------------------------------------------------------------------------------------------------


def may_have_unequal_lengths(loader: Any) -> bool:
    """Whether ranks may get unequal numbers of batches that are unknown before: of a stream, or without a length."""
    if get_dist_info()[1] == 1 or is_unbounded(loader):
        return False
    return length_of(loader) is None or isinstance(getattr(loader, 'dataset', None), IterableDataset)


def check_pass(loader: Any, given: int) -> None:
    """Check that a pass over ``loader`` has given as many batches as its length says; streams may give fewer."""
    length, dataset = length_of(loader), getattr(loader, 'dataset', None)
    if length is None or given >= length or isinstance(dataset, IterableDataset) or is_unbounded(loader):
        return
    text = (
        f'{describe_loader(loader)}: the pass ended after {given} of {length} batches. A StopIteration in a sample, a '
        'transform or collate_fn ends it, such as that of next() of an empty iterator; a loader of '
        'runnerkit.data.build_dataloader names the sample'
    )
    packages = {type(part).__module__.partition('.')[0] for part in (loader, *samplers_of(loader))}
    if packages <= {'torch', 'torchdata', 'runnerkit', 'builtins'}:
        raise RuntimeError(text)
    if is_new(loader):
        logger.warning('%s. If the loader is right, let its length be right', text)


#: The loaders that a warning was logged about: each is logged once.
_seen: weakref.WeakSet[Any] = weakref.WeakSet()


def is_new(loader: Any) -> bool:
    """Whether no warning was logged about ``loader`` yet; False where it cannot be remembered."""
    try:
        was_seen = loader in _seen
        _seen.add(loader)
    except TypeError:
        return False
    return not was_seen
