"""Whether all ranks begin with the same weights, and what of a model is each rank's own. A single process imports none
of it."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from logging import Logger
from typing import Any

from torch import Tensor, nn
from torch import distributed as dist

from runnerkit.distributed import broadcast_buffers, get_dist_info, same_on_all_ranks
from runnerkit.parallel.bits import checksum, has_bits
from runnerkit.parallel.wrappers import name_cleaner, unwrap

#: Where DistributedDataParallel reads the names of the parameters and buffers that it leaves alone.
IGNORED_BY_DDP = '_ddp_params_and_buffers_to_ignore'

#: The models that were compared already: later, buffers may differ (batch norms without ``broadcast_buffers``).
_compared: weakref.WeakSet[nn.Module] = weakref.WeakSet()


def local_tensors(model: nn.Module) -> set[str]:
    """All names of the parameters and buffers of ``model`` that are each rank's own, with those of wrappers, as torch
    has them.

    A module names its own in ``local_to_rank``, a list of parameters, buffers and submodules (``local_to_rank =
    ('queue', 'expert')``). What DistributedDataParallel ignores by configuration counts as well.
    """
    beginnings, clean = [], name_cleaner(model)
    for prefix, module in model.named_modules(remove_duplicate=False):
        own = getattr(module, 'local_to_rank', ())
        names = [*((own,) if isinstance(own, str) else own), *getattr(module, IGNORED_BY_DDP, ())]
        beginnings += [clean(f'{prefix}.{name}' if prefix else name) for name in names]
    if not beginnings:
        return set()
    named = list(_tensors_of(model, remove_duplicate=False))
    starts = tuple(f'{each}.' for each in beginnings)
    own = {id(each) for name, each in named if f'{clean(name)}.'.startswith(starts)}
    return {name for name, each in named if id(each) in own}


def broadcast_shared_buffers(model: nn.Module) -> None:
    """Give all ranks rank 0's buffers of ``model``, without those that are each rank's own. A collective."""
    inner = unwrap(model)
    local = local_tensors(inner)
    broadcast_buffers(buffer for name, buffer in inner.named_buffers() if name not in local)


def check_same_weights(model: Any, logger: Logger, repairs: bool) -> None:
    """Compare a hash of the parameters and buffers of all ranks, once for each model. A collective.

    Those that are sharded or each rank's own (`local_tensors`) are left alone.
    """
    inner = unwrap(model) if isinstance(model, nn.Module) else None
    if inner is None or inner in _compared:
        return
    if getattr(model, 'process_group', None) not in (None, dist.group.WORLD):  # of some ranks only
        return
    _compared.add(inner)
    local = local_tensors(inner)
    tensors = {name: each for name, each in _tensors_of(inner) if name not in local and has_bits(each)}
    if same_on_all_ranks([(name, checksum(each)) for name, each in tensors.items()]):
        return
    if not same_on_all_ranks([(name, each.shape, each.dtype) for name, each in tensors.items()]):
        return  # each rank has another part of a model
    if repairs:
        broadcast_buffers(tensors.values())
    if get_dist_info()[0] == 0:
        logger.warning(
            'The ranks begin with different weights: %s. Draw or load the same on all ranks (after --diff-seed, a '
            'stage draws others), and list what is to differ in local_to_rank of its module',
            'all take those of rank 0' if repairs else 'they stay different, as the runner was given them',
        )


def _tensors_of(model: nn.Module, remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters(remove_duplicate=remove_duplicate)
    yield from model.named_buffers(remove_duplicate=remove_duplicate)
