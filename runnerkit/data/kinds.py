"""Facts about loaders of any kind, as far as a resume needs them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
)

from runnerkit.data.loader import SeededLoader
from runnerkit.data.sampler import EpochBatchSampler, EpochSampler
from runnerkit.data.walk import OF_ITERATIONS, is_stateful

#: The end of most messages about loaders.
BUILD_DATALOADER_HINT = 'runnerkit.data.build_dataloader makes a loader that is exact'

#: So many objects are looked at for a shuffle buffer.
_MOST_OBJECTS = 500


class Order(NamedTuple):
    """An order of samples that is ours to know, and how it is cut into batches."""

    sampler: EpochSampler
    batch_size: int
    drop_last: bool

    def batches_from(self, start: int) -> int:
        """How many batches each rank gets from the position ``start`` on."""
        return EpochBatchSampler(self.sampler, self.batch_size, self.drop_last).batches_from(start)


def order_of(loader: Any) -> Order | None:
    """The order of a loader whose sampler is an `EpochSampler`, in batches of one size; else None."""
    if not isinstance(loader, DataLoader) or not isinstance(loader.sampler, EpochSampler):
        return None
    if not (can_skip_indices(loader) or is_seeded_map(loader)):
        return None
    batching = loader.batch_sampler
    if not isinstance(batching, EpochBatchSampler) and type(batching) is not BatchSampler:
        return None
    return (
        Order(loader.sampler, batching.batch_size, batching.drop_last) if batching.sampler is loader.sampler else None
    )


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
    """What a resumed run compares of its loader: its class, and what else is known."""
    order, dataset, batching = order_of(loader), dataset_of(loader), getattr(loader, 'batch_sampler', None)
    found = {
        'kind': type(loader).__name__,
        'dataset': None if dataset is None else type(dataset).__name__,
        'length': None if dataset is None else length_of(dataset),
        'batch_size': getattr(loader, 'batch_size', None) or getattr(batching, 'batch_size', None),
        'batches': length_of(loader),
        'workers': getattr(loader, 'num_workers', None),
    }
    if is_unbounded(loader):
        found['is_stream'] = True
    sampler = epoch_sampler_of(loader)
    if sampler is not None:
        found['order'] = sampler.order
    if order is not None:
        found.update(world_size=order.sampler.world_size, seed=order.sampler.seed, shuffle=bool(order.sampler.shuffle))
    return found


def set_epoch(loader: Any, epoch: int) -> None:
    """Set the epoch (0-based) that comes next in all of `parts_with_epoch`."""
    for part in parts_with_epoch(loader):
        part.set_epoch(epoch)


def parts_with_epoch(loader: Any) -> list[Any]:
    """``loader``, its samplers and an iterable data set, as far as they have a ``set_epoch``, each once."""
    batch_sampler = getattr(loader, 'batch_sampler', None)
    sampler, inner = getattr(loader, 'sampler', None), getattr(batch_sampler, 'sampler', None)
    dataset = dataset_of(loader)
    parts: list[Any] = [
        loader,
        sampler,
        batch_sampler,
        inner,
        dataset if isinstance(dataset, IterableDataset) else None,
    ]
    return list({id(part): part for part in parts if hasattr(part, 'set_epoch')}.values())


def loader_seed(loader: Any) -> int | None:
    """The seed that a loader's order and samples follow from; None for loaders whose seed is unknown."""
    return loader.seed if isinstance(loader, SeededLoader) else None


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
    """Whether ``loader`` gives no batches, and the same loader of another rank none either: where there are fewer
    samples than ranks, some have an empty share of an evaluation."""
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


def is_reread_by_itself(loader: Any) -> bool:
    """Whether ``loader`` says that it keeps its place, and reads a stream without a state again for it: torchdata's."""
    dataset = dataset_of(loader)
    is_torchs = has_state(loader) and isinstance(loader, DataLoader) and isinstance(dataset, IterableDataset)
    return is_torchs and not is_stateful(dataset)


def lost_at_resume(loader: Any) -> list[str]:
    """What a resume inside an epoch loses of a ``loader`` that keeps its place in a stream itself."""
    dataset, texts = dataset_of(loader), []
    if not has_state(loader) or not is_stateful(dataset):
        return []
    size = shuffle_buffer_of(dataset)
    if size is not None and size > 1:
        texts.append(
            f'its shuffle buffer of {size} samples is not saved: a resume inside an epoch loses its content; '
            f'{BUILD_DATALOADER_HINT}; or use buffer_size=1, which shuffles the shards'
        )
    if size is not None and getattr(loader, 'num_workers', None):
        texts.append(
            'with workers, a resume inside an epoch may fail with an IndexError, because torchdata does not load the '
            'state of a shuffled Hugging Face stream; use num_workers=0, or build_dataloader'
        )
    return texts


def shuffle_buffer_of(dataset: Any) -> int | None:
    """The size of the largest buffer that shuffles a stream of Hugging Face's `datasets` in ``dataset``; None if it is
    not shuffled."""
    waiting, sizes = deque([dataset]), []
    seen: set[int] = set()
    while waiting and len(seen) < _MOST_OBJECTS:
        each = waiting.popleft()
        if id(each) in seen:
            continue
        seen.add(id(each))
        size = getattr(each, 'buffer_size', None) if type(each).__module__ in OF_ITERATIONS else None
        if isinstance(size, int):
            sizes.append(size)
        if type(each) in (list, tuple):  # streams that are read in turn
            waiting.extend(each[:_MOST_OBJECTS])
        else:
            waiting.extend(getattr(each, '__dict__', {}).values())
    return max(sizes, default=None)


def is_unbounded(loader: Any) -> bool:
    """Whether ``loader`` reads a stream: it has one pass, keeps its place in every checkpoint whatever is built around
    it, and its end is the run's."""
    return bool(getattr(loader, 'is_unbounded', False))


def workers_live(loader: Any) -> bool:
    """Whether ``loader`` has workers that wait for its next pass."""
    return bool(getattr(loader, 'persistent_workers', False)) and getattr(loader, '_iterator', None) is not None


def draws_in_workers(loader: Any) -> bool:
    """Whether workers of ``loader`` may draw random numbers that no checkpoint holds."""
    if not isinstance(loader, DataLoader) or isinstance(loader, SeededLoader) or not loader.num_workers:
        return False
    return not (is_pure(loader.dataset) and loader.collate_fn in (default_collate, default_convert))


def describe_loader(loader: Any) -> str:
    """``loader`` in a message: its class, and that of its data set."""
    dataset = dataset_of(loader)
    return type(loader).__name__ if dataset is None else f'{type(loader).__name__} of {type(dataset).__name__}'


def in_workers(loader: Any) -> str:
    """The doubt about a loader for which `draws_in_workers` holds."""
    return (
        f'random numbers that {type(loader.dataset).__name__} or collate_fn draw in workers change after a resume '
        f'inside an epoch; {BUILD_DATALOADER_HINT}'
    )


def fetches_again(loader: Any) -> bool:
    """Whether a batch is the same one when it is fetched again, after the process's generators have moved on."""
    if isinstance(loader, (SeededLoader, Sequence)) or is_unbounded(loader):
        return True
    known = (RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)
    return (
        can_skip_indices(loader)
        and is_pure(loader.dataset)
        and type(loader.batch_sampler) in (BatchSampler, type(None))
        and type(loader.sampler) in (*known, EpochSampler)
    )


def dataset_of(loader: Any) -> Any:
    """The data set of ``loader``, if it has one."""
    return getattr(loader, 'dataset', None)


def is_pure(dataset: Any) -> bool:
    """Whether a sample of ``dataset`` is known to depend on nothing but its index."""
    if isinstance(dataset, (list, tuple, range)) or type(dataset) is TensorDataset:
        return True
    if type(dataset) is Subset:
        return is_pure(dataset.dataset)
    if type(dataset) is ConcatDataset:
        return all(map(is_pure, dataset.datasets))
    return False


def batches_to_reread(loader: Any, batches: int) -> int:
    """How many batches to read again to see whether the last of them is the same.

    As long as each worker has made one batch at most, the first one of a new worker tells nothing; but few batches are
    soon read again from the beginning, and then all workers have the same past.
    """
    return batches if batches <= loader.num_workers else 1


def tells_by_reading(loader: Any) -> bool:
    """Whether a batch that is read again is the same one if the loader is exact: not where its samples draw from the
    process's own generators, which have moved on and go on from where they were."""
    return isinstance(loader, SeededLoader) or draws_in_workers(loader)


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
