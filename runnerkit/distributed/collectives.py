"""Collectives: sums, averages, sending objects, collecting results. With a single process, each is a no-op."""

from __future__ import annotations

import pickle
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist

from runnerkit.distributed.devices import current_index
from runnerkit.distributed.groups import cpu_group, get_dist_info
from runnerkit.utils.exceptions import PeerFailed, ToldByFirstRank
from runnerkit.utils.small_files import open_own, own_folder

T = TypeVar('T')

_MIB = 2**20

#: The most that buffers are put together to, in bytes: as in DistributedDataParallel.
_MESSAGE = 25 * _MIB

#: The length of the first vector that `reduce_named_sums` sums, until more names have come.
_FIRST = 64

#: The names of times whose largest average of a rank is logged.
TIMES = ('time', 'data_time')

#: All names of times that a log has.
TIME_NAMES = tuple(f'{name}{ending}' for name in TIMES for ending in ('', '_max', '_max_rank'))

#: The default group, and the length there by now.
_first: tuple[Any, int] = (None, _FIRST)


def reduce_sums(values: Sequence[float]) -> list[float]:
    """Return the elementwise sums over all ranks in double precision; every rank must give equally many ``values``."""
    if get_dist_info()[1] == 1:
        return list(values)
    sums = torch.tensor(values, dtype=torch.float64, device=group_device())
    dist.all_reduce(sums)
    return sums.tolist()


def reduce_named_sums(sums: Mapping[str, tuple[float, float]]) -> tuple[dict[str, tuple[float, float]], set[str]]:
    """Return the sums over all ranks of pairs of numbers by name; the ranks may have different names.

    One collective if all ranks have the same names; one more when there are more of them than ever before, above 28; up
    to four where the names differ.

    Returns:
        The sums, and the names that some ranks lack. Those are summed over the other ranks.
    """
    return reduce_named_sums_and_row(sums, ())[:2]


def reduce_named_sums_and_row(
    sums: Mapping[str, tuple[float, float]], row: Sequence[float]
) -> tuple[dict[str, tuple[float, float]], set[str], list[float]]:
    """`reduce_named_sums`, and by the same collective the sums of the numbers of ``row``, which is equally long on all
    ranks.

    Returns:
        The sums, the names that some ranks lack, and the summed row.
    """
    global _first
    if get_dist_info()[1] == 1:
        return dict(sums), set(), list(row)
    # All ranks must sum vectors of equal length and meaning. So the first vector has a fixed length and begins with a
    # checksum of the names. The checksum is equal on all ranks if its variance, computed from the sums of it and of
    # its square, is zero. It is sent in numbers so small that the sums of their squares are exact.
    names = sorted(sums)
    checksum = zlib.crc32('\n'.join(names).encode())
    check = [1.0, *(float(x) for part in (len(names), checksum >> 16, checksum & 0xFFFF) for x in (part, part**2))]
    begin = len(check) + len(row)
    room = (_first[1] if _first[0] is dist.group.WORLD else _FIRST) - len(check)
    numbers = [number for name in names for number in sums[name]]
    first = reduce_sums([*check, *row, *numbers[:room], *[0.0] * (room - len(numbers))])
    ranks, *pairs = first[: len(check)]
    partial: set[str] = set()
    if all(total**2 == ranks * squares for total, squares in zip(pairs[::2], pairs[1::2], strict=True)):
        totals = first[begin:]
        if len(numbers) > room:
            totals += reduce_sums(numbers[room:])
            _first = dist.group.WORLD, len(check) + len(numbers)  # as all ranks do here
    else:
        by_rank = all_gather_objects(names)
        names = sorted(set().union(*by_rank))
        partial = set(names) - set(names).intersection(*by_rank)
        totals = reduce_sums([number for name in names for number in sums.get(name, (0.0, 0.0))])
    found = {name: (totals[2 * i], totals[2 * i + 1]) for i, name in enumerate(names)}
    return found, partial, first[len(check) : begin]


def reduce_and_find_slowest(
    sums: Mapping[str, tuple[float, float]],
) -> tuple[dict[str, tuple[float, float]], set[str]]:
    """`reduce_named_sums`, and for each of `TIMES` the largest average of a rank, and that rank.

    They are called ``time_max`` and ``time_max_rank``, and have the weight 1. Each rank adds its times at its own
    places in a row of zeros, so that no further collective is needed; the row is 16 bytes long for each rank.
    """
    rank, world_size = get_dist_info()
    if world_size == 1:
        return dict(sums), set()
    row = [0.0] * (len(TIMES) * world_size)
    for i, name in enumerate(TIMES):
        total, weight = sums.get(name, (0.0, 0.0))
        row[i * world_size + rank] = total / weight if weight else 0.0
    totals, partial, row = reduce_named_sums_and_row(sums, row)
    for i, name in enumerate(TIMES):
        if name in totals:
            times = row[i * world_size : (i + 1) * world_size]
            largest = max(times)
            totals[f'{name}_max'], totals[f'{name}_max_rank'] = (largest, 1.0), (float(times.index(largest)), 1.0)
    return totals, partial


def reduce_extremes(value: float, group: Any = None) -> tuple[float, float]:
    """Return the smallest and the largest ``value`` of all ranks, by one collective.

    Args:
        value: any number.
        group: a gloo group of all ranks to send it through; by default the default group.
    """
    if get_dist_info()[1] == 1:
        return value, value
    device = group_device() if group is None else torch.device('cpu')
    both = torch.tensor([-value, value], dtype=torch.float64, device=device)
    dist.all_reduce(both, dist.ReduceOp.MAX, group=group)
    smallest, largest = both.tolist()
    return -smallest, largest


def same_on_all_ranks(value: Any) -> bool:
    """Whether the ranks have the same ``value``, of which a hash of its text is compared, by one collective."""
    smallest, largest = reduce_extremes(zlib.crc32(repr(value).encode()))
    return smallest == largest


def broadcast_object(obj: T, src: int = 0, group: Any = None) -> T:
    """Return rank ``src``'s ``obj`` on all ranks; anything that can be pickled.

    Args:
        obj: what to send.
        src: who sends it.
        group: a gloo group of all ranks to send it through; by default the common one.
    """
    if get_dist_info()[1] == 1:
        return obj
    objects = [obj]
    device = group_device() if group is None else torch.device('cpu')
    dist.broadcast_object_list(objects, src=src, group=group, device=device)
    return objects[0]


def from_first_rank(call: Callable[[], T], group: Any = None) -> T:
    """Call ``call`` on rank 0 only, and return its result on all ranks.

    Args:
        call: what to call.
        group: a group of all ranks to send the result through; by default the common one.

    Raises:
        BaseException: ``call`` has failed. Rank 0 raises its error; the others raise a RuntimeError that describes it
            (`ToldByFirstRank`), instead of waiting for ever.
    """
    rank, world_size = get_dist_info()
    if world_size == 1:
        return call()
    result: Any = None
    failure: BaseException | None = None
    if rank == 0:
        try:
            result = call()
        except KeyboardInterrupt:  # a second one, to leave at once
            raise
        except BaseException as error:
            failure = error
    result, told = broadcast_object((result, None if failure is None else repr(failure)), group=group)
    if failure is not None:
        raise failure
    if told is not None:
        raise ToldByFirstRank(f'rank 0 has failed: {told}')
    return result


def run_on_all_ranks(call: Callable[[], T]) -> T:
    """Call ``call`` on every rank, and return its result. If it fails on one, it fails on all.

    Raises:
        BaseException: ``call`` has failed: here, or elsewhere (`PeerFailed`, which says what happened on which rank).
    """
    result: Any = None
    failure: BaseException | None = None
    try:
        result = call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        failure = error
    if not reduce_extremes(failure is not None)[1]:
        return result
    told = all_gather_objects(None if failure is None else repr(failure))
    if failure is not None:
        raise failure
    for rank, text in enumerate(told):
        if text is not None:
            raise PeerFailed(f'rank {rank} has failed: {text}')
    return result


def gather_objects(obj: T, group: Any = None) -> list[T]:
    """Return every rank's ``obj``, in the order of ranks, on rank 0; an empty list on the others.

    Args:
        obj: anything that can be pickled.
        group: a process group of all ranks to send it through; by default the default one.
    """
    rank, world_size = get_dist_info()
    if world_size == 1:
        return [obj]
    gathered: list[Any] | None = [None] * world_size if rank == 0 else None
    dist.gather_object(obj, gathered, dst=0, group=group)
    return gathered or []


def all_gather_objects(obj: T, group: Any = None) -> list[T]:
    """Return every rank's ``obj``, in the order of ranks, on all ranks; anything that can be pickled.

    Args:
        obj: what to send.
        group: a group of all ranks to send it through; by default the common one.
    """
    world_size = get_dist_info()[1]
    if world_size == 1:
        return [obj]
    gathered: list[Any] = [None] * world_size
    dist.all_gather_object(gathered, obj, group=group)
    return gathered


@torch.no_grad()
def broadcast_buffers(buffers: Iterable[Tensor], src: int = 0) -> None:
    """Copy rank ``src``'s buffers to every rank (BatchNorm's statistics, for example, differ between ranks).

    Many of them are sent in one message. Those that are sharded (DTensors, such as averages of sharded weights) stay as
    they are.
    """
    rank, world_size = get_dist_info()
    if world_size == 1:
        return
    whole = [each.detach() for each in buffers if _is_whole(each)]
    # As bytes, since gloo has not all types.
    _in_messages(whole, _MESSAGE, lambda flat: dist.broadcast(flat.view(torch.uint8), src), rank != src)


def barrier() -> None:
    """Wait until all ranks have called this."""
    if get_dist_info()[1] > 1:
        device = group_device()
        dist.barrier(device_ids=None if device.type == 'cpu' else [device.index])


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
    limit = (bucket_size_mb * _MIB if bucket_size_mb > 0 else None) if coalesce else 0
    _in_messages(tensors, limit, partial(_average_one, world_size=world_size))


def _in_messages(
    tensors: list[Tensor], limit: int | None, send: Callable[[Tensor], Any], receives: bool = True
) -> None:
    """Put ``tensors`` together into flat ones of at most ``limit`` bytes, which ``send`` changes; take the values over
    if this rank ``receives``."""
    for bucket in _buckets(tensors, limit):
        flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
        send(flat)
        for tensor, value in zip(bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True):
            if receives:
                tensor.copy_(value.view_as(tensor))


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


def group_device() -> torch.device:
    """The device that tensors must be on to be sent through the default group: nccl and xccl support GPUs only."""
    kind = {'nccl': 'cuda', 'xccl': 'xpu'}.get(dist.get_backend(), 'cpu')
    return torch.device(kind, current_index(kind) or 0) if kind != 'cpu' else torch.device('cpu')


_ABSENT = object()


def collect_results(part: Sequence[Any], size: int) -> list[Any] | None:
    """Return all ranks' results in the order of the samples on rank 0; None on the others.

    They are sent through the host's memory, whatever the backend is; no folder is needed that all ranks see.

    Args:
        part: this rank's results, for the samples ``rank``, ``rank + world_size`` … in this order.
        size: the number of samples; results of samples that were added to make shares equal are dropped.
    """
    parts = gather_objects(list(part), None if get_dist_info()[1] == 1 else cpu_group())
    return in_order(parts, size) if parts else None


def collect_results_cpu(result_part: Sequence[Any], size: int, tmpdir: str | None = None) -> list[Any] | None:
    """`collect_results` under MMCV's name, or through files.

    Args:
        result_part: as in `collect_results`.
        size: as in `collect_results`.
        tmpdir: a folder that all ranks see; if given, results go through files in it. It is created, and removed at the
            end.
    """
    rank, world_size = get_dist_info()
    if tmpdir is None:
        return collect_results(result_part, size)
    folder = Path(tmpdir)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open_own(own_folder(folder) / f'part_{rank}.pkl', 'wb') as file:
        pickle.dump(list(result_part), file)
    barrier()
    if rank != 0:
        return None
    parts = [pickle.loads((folder / f'part_{i}.pkl').read_bytes()) for i in range(world_size)]
    shutil.rmtree(folder)
    return in_order(parts, size)


def collect_results_gpu(result_part: Sequence[Any], size: int) -> list[Any] | None:
    """`collect_results` through the default group, which may be of GPUs."""
    parts = gather_objects(list(result_part))
    return in_order(parts, size) if parts else None


def in_order(parts: Sequence[Sequence[Any]], size: int) -> list[Any]:
    """Interleave the parts (the first of each, the second of each …) and return the first ``size`` items."""
    mixed = [each for row in zip_longest(*parts, fillvalue=_ABSENT) for each in row if each is not _ABSENT]
    return mixed[:size]
