"""Loaders that the user has built, in place of a data set."""

from __future__ import annotations

from typing import Any

from torch.utils.data import BatchSampler, DataLoader, Dataset

from runnerkit.data.kinds import can_skip_indices
from runnerkit.data.loader import LOADER_OPTIONS
from runnerkit.distributed.groups import get_dist_info
from runnerkit.utils.exceptions import WrongType


def is_loader(value: Any) -> bool:
    """Whether ``value`` gives batches, and not samples: a DataLoader, or an iterable that is no data set."""
    if isinstance(value, DataLoader):
        return True
    return hasattr(value, '__iter__') and not (isinstance(value, Dataset) or hasattr(value, '__getitem__'))


def check_loader(loader: Any) -> None:
    """Whether a run can pass over ``loader`` more than once."""
    if hasattr(loader, '__next__'):
        raise WrongType(
            f'an iterator ({type(loader).__name__}) ends after one pass: give what iter() was called with, or for a '
            'generator an object whose __iter__ starts it anew'
        )


def given_loader(loader: Any, seed: int, trains: bool) -> Any:
    """``loader`` itself; of several ranks, each gets its share of what a plain DataLoader's samplers give. A
    collective, see `runnerkit.data.shares.shared_out`."""
    rank, world_size = get_dist_info()
    if world_size == 1 or not can_skip_indices(loader):
        return loader
    from runnerkit.data.shares import shared_out

    batches = loader.batch_sampler
    cuts = type(batches) is BatchSampler and batches.sampler is loader.sampler  # into batches, and nothing else
    whole = loader.sampler if cuts or batches is None else batches
    context = {'seed': seed, 'rank': rank, 'world_size': world_size, 'round_up': trains, 'drop_last': loader.drop_last}
    share = shared_out(whole, len(loader.dataset), context)
    if share is whole:
        return loader
    options = {name: getattr(loader, name) for name in ('num_workers', 'persistent_workers', *LOADER_OPTIONS)}
    if cuts:
        options |= {'sampler': share, 'batch_size': loader.batch_size, 'drop_last': loader.drop_last}
    else:
        options |= {'sampler': share, 'batch_size': None} if batches is None else {'batch_sampler': share}
    return DataLoader(loader.dataset, **options)
