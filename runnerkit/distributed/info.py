"""The rank of this process and the number of processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import ParamSpec, TypeVar

from torch import distributed as dist

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
