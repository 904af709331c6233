"""Collectives: sums, averages, sending objects. With a single process, each is a no-op."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist

from runnerkit.distributed.info import get_dist_info
from runnerkit.utils.exceptions import ToldByFirstRank

T = TypeVar('T')

_MIB = 2**20

#: The length of the first vector that `reduce_named_sums` sums.
_FIRST = 64


def reduce_sums(values: Sequence[float]) -> list[float]:
    """Return the elementwise sums over all ranks in double precision; every rank must give equally many ``values``."""
    if get_dist_info()[1] == 1:
        return list(values)
    sums = torch.tensor(values, dtype=torch.float64, device=_device())
    dist.all_reduce(sums)
    return sums.tolist()


def reduce_named_sums(sums: Mapping[str, tuple[float, float]]) -> tuple[dict[str, tuple[float, float]], set[str]]:
    """Return the sums over all ranks of pairs of numbers by name; the ranks may have different names.

    One collective if all ranks have the same names, at most 28; otherwise up to four.

    Returns:
        The sums, and the names that some ranks lack. Those are summed over the other ranks.
    """
    if get_dist_info()[1] == 1:
        return dict(sums), set()
    # All ranks must sum vectors of equal length and meaning. So the first vector has a fixed length and begins with a
    # checksum of the names. The checksum is equal on all ranks if its variance, computed from the sums of it and of
    # its square, is zero. It is sent in numbers so small that the sums of their squares are exact.
    names = sorted(sums)
    checksum = zlib.crc32('\n'.join(names).encode())
    check = [1.0, *(float(x) for part in (len(names), checksum >> 16, checksum & 0xFFFF) for x in (part, part**2))]
    room = _FIRST - len(check)
    numbers = [number for name in names for number in sums[name]]
    first = reduce_sums(check + numbers[:room] + [0.0] * (room - len(numbers)))
    ranks, *pairs = first[: len(check)]
    partial: set[str] = set()
    if all(total**2 == ranks * squares for total, squares in zip(pairs[::2], pairs[1::2], strict=True)):
        totals = first[len(check) :] + (reduce_sums(numbers[room:]) if len(numbers) > room else [])
    else:
        by_rank = all_gather_objects(names)
        names = sorted(set().union(*by_rank))
        partial = set(names) - set(names).intersection(*by_rank)
        totals = reduce_sums([number for name in names for number in sums.get(name, (0.0, 0.0))])
    return {name: (totals[2 * i], totals[2 * i + 1]) for i, name in enumerate(names)}, partial


def reduce_max(value: float) -> float:
    """Return the largest ``value`` of all ranks."""
    if get_dist_info()[1] == 1:
        return value
    largest = torch.tensor(value, dtype=torch.float64, device=_device())
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return largest.item()


def broadcast_object(obj: T, src: int = 0) -> T:
    """Return rank ``src``'s ``obj`` on all ranks; anything that can be pickled."""
    if get_dist_info()[1] == 1:
        return obj
    objects = [obj]
    dist.broadcast_object_list(objects, src=src, device=_device())
    return objects[0]


def from_first_rank(call: Callable[[], T]) -> T:
    """Call ``call`` on rank 0 only, and return its result on all ranks.

    Raises:
        Exception: ``call`` has failed. Rank 0 raises its error; the others raise a RuntimeError that describes it
            (`ToldByFirstRank`), instead of waiting for ever.
    """
    rank, world_size = get_dist_info()
    if world_size == 1:
        return call()
    result: Any = None
    failure: Exception | None = None
    if rank == 0:
        try:
            result = call()
        except Exception as error:
            failure = error
    result, told = broadcast_object((result, None if failure is None else repr(failure)))
    if failure is not None:
        raise failure
    if told is not None:
        raise ToldByFirstRank(f'rank 0 has failed: {told}')
    return result


def gather_objects(obj: T) -> list[T]:
    """Return every rank's ``obj``, in the order of ranks, on rank 0; an empty list on the others."""
    rank, world_size = get_dist_info()
    if world_size == 1:
        return [obj]
    gathered: list[Any] | None = [None] * world_size if rank == 0 else None
    dist.gather_object(obj, gathered, dst=0)
    return gathered or []


def all_gather_objects(obj: T) -> list[T]:
    """Return every rank's ``obj``, in the order of ranks, on all ranks; anything that can be pickled."""
    world_size = get_dist_info()[1]
    if world_size == 1:
        return [obj]
    gathered: list[Any] = [None] * world_size
    dist.all_gather_object(gathered, obj)
    return gathered


def broadcast_buffers(buffers: Iterable[Tensor], src: int = 0) -> None:
    """Copy rank ``src``'s buffers to every rank (BatchNorm's statistics, for example, differ between ranks).

    Those that are sharded (DTensors, such as averages of sharded weights) stay as they are.
    """
    if get_dist_info()[1] > 1:
        for buffer in filter(_is_whole, buffers):
            dist.broadcast(buffer.data, src)


def barrier() -> None:
    """Wait until all ranks have called this."""
    if get_dist_info()[1] > 1:
        on_gpu = _device().type == 'cuda'
        dist.barrier(device_ids=[torch.cuda.current_device()] if on_gpu else None)


def same_seed_everywhere(seed: int) -> int:
    """Return rank 0's ``seed``."""
    return broadcast_object(seed)


def allreduce_params(params: Iterable[Tensor], coalesce: bool = True, bucket_size_mb: int = -1) -> None:
    """Replace ``params``, parameters or buffers, by their means over all ranks.

    Means of integers are rounded down; for booleans, rank 0's values are used. Those that are sharded (DTensors) stay
    as they are.

    Args:
        params: the same on all ranks, in the same order.
        coalesce: send many of them in one message.
        bucket_size_mb: the maximum size of one message, in MiB; by default one message for each type.
    """
    _average([param.detach() for param in params if _is_whole(param)], coalesce, bucket_size_mb)


def allreduce_grads(params: Iterable[nn.Parameter], coalesce: bool = True, bucket_size_mb: int = -1) -> None:
    """Replace the gradients of ``params``, if they have any, by their means over all ranks; see `allreduce_params`."""
    grads = [param.grad.detach() for param in params if param.requires_grad and param.grad is not None]
    _average(grads, coalesce, bucket_size_mb)


@torch.no_grad()
def _average(tensors: list[Tensor], coalesce: bool, bucket_size_mb: int) -> None:
    world_size = get_dist_info()[1]
    if world_size == 1:
        return
    for bucket in (
        _buckets(tensors, bucket_size_mb * _MIB if bucket_size_mb > 0 else None) if coalesce else [[t] for t in tensors]
    ):
        flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
        _average_one(flat, world_size)
        for tensor, mean in zip(bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True):
            tensor.copy_(mean.view_as(tensor))


def _average_one(flat: Tensor, world_size: int) -> None:
    if flat.dtype == torch.bool:
        dist.broadcast(flat, src=0)
        return
    numbers = torch.view_as_real(flat) if flat.is_complex() else flat
    dist.all_reduce(numbers)
    if numbers.is_floating_point():
        numbers.div_(world_size)
    else:
        numbers.div_(world_size, rounding_mode='floor')


def _is_whole(tensor: Tensor) -> bool:
    return not hasattr(tensor, 'to_local')


def _buckets(tensors: list[Tensor], limit: int | None) -> Iterator[list[Tensor]]:
    """Yield groups of tensors of one type and device, at most ``limit`` bytes each unless a single one is larger."""
    kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    for group in kinds.values():
        bucket: list[Tensor] = []
        size = 0
        for tensor in group:
            if bucket and limit is not None and size + tensor.nbytes > limit:
                yield bucket
                bucket, size = [], 0
            bucket.append(tensor)
            size += tensor.nbytes
        yield bucket


def _device() -> torch.device:
    """Return the device that tensors must be on to be sent: nccl supports GPUs only."""
    return torch.device('cuda', torch.cuda.current_device()) if dist.get_backend() == 'nccl' else torch.device('cpu')
