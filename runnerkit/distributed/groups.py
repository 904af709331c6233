"""The rank of this process, and further process groups: on the CPU, and for longer waits than collectives allow."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import distributed as dist

from runnerkit.utils.exceptions import ToldByFirstRank

P = ParamSpec('P')
R = TypeVar('R')


def is_distributed() -> bool:
    """Whether this process has joined a process group."""
    return dist.is_available() and dist.is_initialized()


def get_dist_info() -> tuple[int, int]:
    """Return this process's rank, from 0, and the number of processes; (0, 1) if there is only one."""
    is_alone = not (dist.is_available() and dist.is_initialized())
    return (0, 1) if is_alone else (dist.get_rank(), dist.get_world_size())


def master_only(func: Callable[P, R]) -> Callable[P, R | None]:
    """Make ``func`` do nothing, and return None, on all ranks but the first."""

    @wraps(func)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | None:
        rank, _ = get_dist_info()
        return func(*args, **kwargs) if rank == 0 else None

    return wrapper


def ranks_in_words(ranks: Sequence[int], most: int = 16) -> str:
    """``rank 1``, ``ranks 0, 2``; of more than ``most``, the first ones and how many there are."""
    more = f' … ({len(ranks)} in all)' if len(ranks) > most else ''
    return f'rank{"s" * (len(ranks) > 1)} {", ".join(map(str, ranks[:most]))}{more}'


T = TypeVar('T')

#: How long the others wait for what rank 0 does alone. If its process ends, they notice at once.
PATIENCE = timedelta(days=1)

#: How long a rank 0 that has failed tries to tell the others, in seconds.
_TO_TELL = 5.0

#: The longest time between two looks whether rank 0 is done, in seconds.
_POLL = 0.05

#: How many bytes of a failure are sent.
_TEXT = 2048

#: The groups that were made in addition to the default one, by their time-outs; and that default group.
_groups: dict[timedelta | None, Any] = {}
_made_beside: Any = None


def cpu_group() -> Any:
    """A group of all ranks that sends what lies in the host's memory: the default one, if it can. The first call is a
    collective."""
    return dist.group.WORLD if dist.get_backend() == 'gloo' else _group(None)


def meet_patiently() -> None:
    """Make the group of `broadcast_patiently`, on all ranks together, before what rank 0 may fail in: the ranks could
    not make it any more when they stand at different places."""
    if get_dist_info()[1] > 1:
        _group(PATIENCE)


def broadcast_patiently(obj: T) -> T:
    """Return rank 0's ``obj`` on all ranks, which wait for it as long as `PATIENCE`; anything that can be pickled.

    It is sent through a separate gloo group, whose time-out is not the default group's. Signal handlers run while the
    others wait.

    Raises:
        ToldByFirstRank: rank 0 has called `tell_failure` instead.
    """
    if get_dist_info()[1] == 1:
        return obj
    failure = _told('', None)
    if failure:
        raise ToldByFirstRank(f'rank 0 has failed: {failure}')
    objects = [obj]
    dist.broadcast_object_list(objects, src=0, group=_group(PATIENCE), device=torch.device('cpu'))
    return objects[0]


def tell_failure(error: BaseException) -> None:
    """On rank 0: tell the ranks that wait in `broadcast_patiently`, or come there, that nothing will follow. No-op on
    other ranks, in a single process, and before `meet_patiently`."""
    if get_dist_info()[0] == 0 and PATIENCE in _groups and _made_beside is dist.group.WORLD:
        with suppress(RuntimeError):  # the others may have gone; the caller raises ``error`` itself
            _told(repr(error), _TO_TELL)


def _told(failure: str, seconds: float | None) -> str:
    """Send what rank 0 has to say, empty if all is well, and return it; give up after so many ``seconds``."""
    note = torch.zeros(_TEXT, dtype=torch.uint8)
    text = failure.encode()[:_TEXT]
    note[: len(text)] = torch.tensor(list(text), dtype=torch.uint8)
    work = dist.broadcast(note, src=0, group=_group(PATIENCE), async_op=True)
    pause, deadline = 0.0005, None if seconds is None else time.monotonic() + seconds
    while not work.is_completed():  # in a wait of torch's, no signal handler would run
        if deadline is not None and time.monotonic() > deadline:
            return failure
        time.sleep(pause)
        pause = min(2 * pause, _POLL)
    work.wait()
    return bytes(note.tolist()).rstrip(b'\0').decode(errors='replace')


def _group(timeout: timedelta | None) -> Any:
    """The gloo group with this time-out, torch's own if None; made at the first call, on all ranks together."""
    global _made_beside
    if _made_beside is not dist.group.WORLD:
        _groups.clear()
        _made_beside = dist.group.WORLD
    if timeout not in _groups:
        if timeout is not None:
            dist.barrier(cpu_group())  # it notices that a rank has gone; a new group would wait for it that long
        _groups[timeout] = dist.new_group(backend='gloo', timeout=timeout)
    return _groups[timeout]
