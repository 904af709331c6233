"""Entering any loader's epoch at any batch, and the random generators that its order may depend on."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler

from runnerkit.data.loader import SeededLoader
from runnerkit.utils.seed import rng_state, set_rng_state

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
        self._items: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        self._items = None
        return self

    def __next__(self) -> Any:
        return next(self.enter())

    def enter(self) -> Iterator[Any]:
        """Draw and leave out the first items, unless that is done; returns an iterator over the others.

        A loader draws its workers' seed before the first index, so that this comes after ``iter(loader)``; but before
        the first batch is loaded, so that a caller can then put global generators where they belong.
        """
        if self._items is None:
            self._items = iter(self.sampler)
            for _ in islice(self._items, self.start):
                pass
        return self._items


def set_epoch(loader: Any, epoch: int) -> None:
    """Tell ``loader`` and its samplers which epoch (0-based) comes next, those of them that have a ``set_epoch``."""
    told = {id(part): part.set_epoch for part in _parts(loader) if hasattr(part, 'set_epoch')}
    for tell in told.values():
        tell(epoch)


def epoch_batches(loader: Any, epoch: int, start: int = 0, state: Any = None) -> Iterator[Any]:
    """The batches of an epoch after the first ``start`` ones, from any loader.

    A `SeededLoader` enters there without loading anything that lies before. In a torch DataLoader over a map-style
    data set the first index lists are drawn and thrown away, so that nothing before is loaded either; its samples are
    then those of an uninterrupted epoch as far as its samplers and the data set draw from no generator that has moved
    on. A loader that keeps a ``state_dict`` of its own is given back what it said. Everything else is iterated up to
    there.

    Args:
        loader: an iterable of batches.
        epoch: 0-based; handed to the loader and its samplers where they have a ``set_epoch``.
        start: how many batches to leave out, at least 0.
        state: what `loader_state` gave after these batches.

    Raises:
        ValueError: ``start`` is negative.
    """
    if start < 0:
        raise ValueError(f'start must be the number of batches to leave out, at least 0, but got {start}')
    if start and state is not None and _has_state(loader):
        set_epoch(loader, epoch)
        loader.load_state_dict(state)
        return iter(loader)
    if _is_seeded_map(loader):
        return loader.enter(epoch, start)
    set_epoch(loader, epoch)
    if start == 0:
        return iter(loader)
    if _can_skip_indices(loader):
        return _without_first(loader, start)
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


def is_cheap_to_enter(loader: Any) -> bool:
    """Whether an epoch of ``loader`` can be entered in its middle without loading what lies before."""
    return _is_seeded_map(loader) or _can_skip_indices(loader)


def _is_seeded_map(loader: Any) -> bool:
    return isinstance(loader, SeededLoader) and not isinstance(loader.dataset, IterableDataset)


def _can_skip_indices(loader: Any) -> bool:
    """Whether ``loader`` does nothing but torch's own iteration over a map-style data set."""
    return (
        isinstance(loader, DataLoader)
        and type(loader).__iter__ is DataLoader.__iter__
        and not isinstance(loader.dataset, IterableDataset)
    )


def _without_first(loader: DataLoader[Any], start: int) -> Iterator[Any]:
    """An iterator over the loader's batches but the first ``start``."""
    whole = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    rest = SkippedSampler(whole, start)
    batching: dict[str, Any] = {'batch_sampler': rest}
    if loader.batch_sampler is None:
        batching = {'batch_size': None, 'sampler': rest}
    options = {name: getattr(loader, name) for name in _OPTIONS if hasattr(loader, name)}
    batches = iter(DataLoader(loader.dataset, **batching, **options))
    rest.enter()
    return batches


def loader_state(loader: Any) -> Any:
    """What a loader with a ``state_dict`` of its own (torchdata's, a stream's) says of its place; None for others."""
    return loader.state_dict() if _has_state(loader) else None


def _has_state(loader: Any) -> bool:
    both = hasattr(loader, 'state_dict') and hasattr(loader, 'load_state_dict')
    return both and not isinstance(loader, SeededLoader)


def generator_states(loader: Any) -> dict[str, Any]:
    """The states of all generators that ``loader`` may draw from: the process's, and those that it owns.

    Returns:
        ``rng``: what `runnerkit.utils.seed.rng_state` gives; ``own``: the states of the generators that the user has
        given to the loader or its samplers, in a fixed order; None if ``loader`` is None, not known yet. Tensors and
        plain values only.
    """
    own = None if loader is None else [generator.get_state() for generator in _own_generators(loader)]
    return {'rng': rng_state(), 'own': own}


def set_generator_states(loader: Any, state: dict[str, Any]) -> None:
    """Put all generators that ``loader`` may draw from back into what `generator_states` gave.

    Args:
        loader: the one whose states these are, or one built in the same way. The generators of one that owns more or
            fewer of them stay as they are, with a warning.
        state: its tensors may have been moved to a device meanwhile.
    """
    set_rng_state(state['rng'])
    if state['own'] is None:
        return
    generators = _own_generators(loader)
    if len(generators) != len(state['own']):
        warnings.warn(
            f'{type(loader).__name__} and its samplers own {len(generators)} random generators, but the states of '
            f'{len(state["own"])} were saved: they are left as they are, and its order is not that of the run that was '
            f'saved. Build the loader as it was built then.',
            stacklevel=2,
        )
        return
    for generator, own in zip(generators, state['own'], strict=True):
        generator.set_state(own.cpu())


def _own_generators(loader: Any) -> list[torch.Generator]:
    """The generators that the user has given to ``loader`` and its samplers, each once."""
    parts = _parts(loader)
    if isinstance(loader, SeededLoader):
        parts = parts[1:]  # the loader's own seeds nothing but workers, whose samples are seeded one by one
    found = (getattr(part, 'generator', None) for part in parts)
    return list({id(each): each for each in found if isinstance(each, torch.Generator)}.values())


def _parts(loader: Any) -> tuple[Any, ...]:
    """``loader`` and its samplers; None for those that it does not have."""
    batch_sampler = getattr(loader, 'batch_sampler', None)
    return loader, getattr(loader, 'sampler', None), batch_sampler, getattr(batch_sampler, 'sampler', None)
