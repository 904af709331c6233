"""Entering any loader's epoch at any batch."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, Sampler

from runnerkit.data.loader import SeededLoader

#: What a DataLoader is built with beside its data set and samplers, as far as this torch has it (``in_order``: 2.6).
_OPTIONS = (
    'num_workers',
    'collate_fn',
    'pin_memory',
    'timeout',
    'worker_init_fn',
    'multiprocessing_context',
    'generator',
    'prefetch_factor',
    'in_order',
)


class SkippedSampler(Sampler[Any]):
    """A sampler or batch sampler without its first items.

    Args:
        sampler: whose items these are.
        start: how many to leave out.
    """

    def __init__(self, sampler: Iterable[Any], start: int) -> None:
        self.sampler = sampler
        self.start = start

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.sampler), self.start, None)


def set_epoch(loader: Any, epoch: int) -> None:
    """Tell ``loader`` and its samplers which epoch (0-based) comes next, those of them that have a ``set_epoch``."""
    batch_sampler = getattr(loader, 'batch_sampler', None)
    parts = (loader, getattr(loader, 'sampler', None), batch_sampler, getattr(batch_sampler, 'sampler', None))
    told = {id(part): part.set_epoch for part in parts if part is not None and hasattr(part, 'set_epoch')}
    for tell in told.values():
        tell(epoch)


def epoch_batches(loader: Any, epoch: int, start: int = 0) -> Iterator[Any]:
    """The batches of an epoch after the first ``start`` ones, from any loader.

    A `SeededLoader` enters there without loading anything that lies before. In a torch DataLoader over a map-style
    data set the first index lists are drawn and thrown away, so that nothing before is loaded either; its samples are
    then those of an uninterrupted epoch as far as its samplers and the data set draw from no generator that has moved
    on. Everything else is iterated up to there. A loader that keeps a ``state_dict`` of its own is better asked by
    the caller, who knows that state.

    Args:
        loader: an iterable of batches.
        epoch: 0-based; handed to the loader and its samplers where they have a ``set_epoch``.
        start: how many batches to leave out, at least 0.

    Raises:
        ValueError: ``start`` is negative.
    """
    if start < 0:
        raise ValueError(f'start must be the number of batches to leave out, at least 0, but got {start}')
    if isinstance(loader, SeededLoader) and not isinstance(loader.dataset, IterableDataset):
        return loader.enter(epoch, start)
    set_epoch(loader, epoch)
    if start == 0:
        return iter(loader)
    if _can_skip_indices(loader):
        return iter(_without_first(loader, start))
    warnings.warn(
        f'{type(loader).__name__} cannot be entered in the middle of an epoch: the first {start} are loaded and '
        f'thrown away, which takes as long as it took in training, and nothing promises that the next ones are those '
        f'that would have come without an interruption. Loaders of map-style data sets made by '
        f'runnerkit.data.build_dataloader have neither problem.',
        stacklevel=2,
    )
    batches = iter(loader)
    for _ in islice(batches, start):
        pass
    return batches


def loader_seed(loader: Any) -> int | None:
    """The seed that a loader's order and samples follow from; None for loaders whose seed is unknown."""
    return loader.seed if isinstance(loader, SeededLoader) else None


def _can_skip_indices(loader: Any) -> bool:
    """Whether ``loader`` does nothing but torch's own iteration over a map-style data set."""
    return (
        isinstance(loader, DataLoader)
        and type(loader).__iter__ is DataLoader.__iter__
        and not isinstance(loader.dataset, IterableDataset)
    )


def _without_first(loader: DataLoader[Any], start: int) -> DataLoader[Any]:
    """A loader of the same batches but the first ``start``, for one iteration."""
    if loader.batch_sampler is None:
        batching: dict[str, Any] = {'batch_size': None, 'sampler': SkippedSampler(loader.sampler, start)}
    else:
        batching = {'batch_sampler': SkippedSampler(loader.batch_sampler, start)}
    options = {name: getattr(loader, name) for name in _OPTIONS if hasattr(loader, name)}
    return DataLoader(loader.dataset, **batching, **options)
