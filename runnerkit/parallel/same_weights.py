"""Whether all ranks begin with the same weights, and what of a model is each rank's own."""

from __future__ import annotations

import weakref
import zlib
from collections.abc import Iterator
from logging import Logger
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parameter import is_lazy

from runnerkit.distributed import all_gather_objects, broadcast_buffers, get_dist_info, reduce_extremes
from runnerkit.parallel.bits import view_bits
from runnerkit.parallel.dtensors import is_dtensor
from runnerkit.parallel.wrappers import unwrap

#: Where DistributedDataParallel reads the names of the parameters and buffers that it leaves alone.
IGNORED_BY_DDP = '_ddp_params_and_buffers_to_ignore'

#: So many numbers are summed up at once.
_BLOCK = 2**20

#: The models that were compared already: later, buffers may differ (batch norms without ``broadcast_buffers``).
_compared: weakref.WeakSet[nn.Module] = weakref.WeakSet()


def local_tensors(model: nn.Module) -> set[str]:
    """The names of the parameters and buffers of ``model`` that are each rank's own.

    A module names its own in ``local_to_rank``, a list of parameters, buffers and submodules (``local_to_rank =
    ('queue', 'expert')``). What DistributedDataParallel ignores by configuration counts as well.
    """
    beginnings = []
    for prefix, module in model.named_modules():
        own = getattr(module, 'local_to_rank', ())
        names = [*((own,) if isinstance(own, str) else own), *getattr(module, IGNORED_BY_DDP, ())]
        beginnings += [f'{prefix}.{name}' if prefix else name for name in names]
    if not beginnings:
        return set()
    return {
        name for name, _ in _named(model) if any(name == each or name.startswith(f'{each}.') for each in beginnings)
    }


def shared_buffers(model: nn.Module) -> Iterator[Tensor]:
    """The buffers of ``model`` without those that are each rank's own."""
    inner = unwrap(model)
    local = local_tensors(inner)
    return (buffer for name, buffer in inner.named_buffers() if name not in local)


def check_same_weights(model: Any, logger: Logger, repairs: bool) -> None:
    """Compare the parameters and buffers of all ranks, once for each model; a difference is logged. A collective.

    Those that are sharded or each rank's own (`local_tensors`) are left alone. If nothing differs, this is one small
    message.

    Args:
        model: as it is trained, wrapped or not.
        logger: for the difference.
        repairs: whether all ranks then take the values of rank 0.
    """
    inner = unwrap(model) if isinstance(model, nn.Module) else None
    if get_dist_info()[1] == 1 or inner is None or inner in _compared:
        return
    if getattr(model, 'process_group', None) not in (None, dist.group.WORLD):  # of some ranks only
        return
    _compared.add(inner)
    local = local_tensors(inner)
    tensors = {name: each for name, each in _named(inner) if name not in local and _is_plain(each)}
    sums = {(name, tuple(each.shape), str(each.dtype)): checksum(each) for name, each in tensors.items()}
    lowest, highest = reduce_extremes(zlib.crc32(repr(sums).encode()))
    if lowest == highest:
        return
    first, *others = all_gather_objects(sums)
    # Those that some rank lacks, or has in another shape, are none to compare.
    differing = [
        (key[0], rank)
        for key in first
        if all(key in other for other in others)
        for rank in [next((i for i, other in enumerate(others, 1) if other[key] != first[key]), 0)]
        if rank
    ]
    if not differing:
        return
    if repairs:
        broadcast_buffers([tensors[name] for name, _ in differing])
    if get_dist_info()[0] == 0:
        name, rank = differing[0]
        logger.warning(
            'The ranks begin with different weights: %d of %d tensors differ, first %s, on rank %d. %s. Draw or load '
            'the same on all ranks (after --diff-seed, a stage draws others), and list what is to differ in '
            'local_to_rank of its module',
            len(differing),
            len(first),
            name,
            rank,
            'All ranks take the values of rank 0' if repairs else 'They stay different, as the runner was given them',
        )


def checksum(tensor: Tensor) -> int:
    """A sum of the bits of ``tensor`` in which each place has another weight."""
    bits = view_bits(tensor).reshape(-1)
    total = torch.zeros((), dtype=torch.int64, device=bits.device)
    for number, block in enumerate(bits.split(_BLOCK)):
        places = torch.arange(1, len(block) + 1, device=bits.device)
        total += (block.long() * places).sum() * (2 * number + 1)
    return int(total)


def _named(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _is_plain(tensor: Tensor) -> bool:
    """Whether all of the bits of ``tensor`` are here, and can be read."""
    if is_lazy(tensor) or is_dtensor(tensor) or tensor.layout != torch.strided:
        return False
    return not (tensor.is_meta or tensor.is_quantized) and tensor.numel() > 0
