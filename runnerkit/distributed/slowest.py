"""Who keeps the others waiting: the largest time of all ranks, found by the collective that sums what is logged."""

from __future__ import annotations

from collections.abc import Mapping

from runnerkit.distributed.collectives import reduce_named_sums
from runnerkit.distributed.info import get_dist_info

#: The names of times that are compared.
TIMES = ('time', 'data_time')

#: All names of times that a log has.
NAMES = tuple(f'{name}{ending}' for name in TIMES for ending in ('', '_max', '_max_rank'))

#: How the places of single ranks are called.
_PLACES = 'rank times: '

Sums = Mapping[str, tuple[float, float]]


def reduce_and_find_slowest(sums: Sums) -> tuple[dict[str, tuple[float, float]], set[str]]:
    """`reduce_named_sums`, and for each of `TIMES` the largest average of a rank, and that rank.

    They are called ``time_max`` and ``time_max_rank``, and have the weight 1. Each rank adds its time at its own place
    in a row of zeros, so that no further collective is needed.
    """
    rank, world_size = get_dist_info()
    if world_size == 1:
        return reduce_named_sums(sums)
    names = [name for name in TIMES if name in sums]
    own = {_place(name, each): (0.0, 0.0) for name in names for each in range(world_size)}
    own |= {_place(name, rank): sums[name] for name in names}
    totals, partial = reduce_named_sums({**sums, **own})
    for name in names:
        times = [_mean(totals.pop(_place(name, each))) for each in range(world_size)]
        largest = max(times)
        totals[f'{name}_max'], totals[f'{name}_max_rank'] = (largest, 1.0), (float(times.index(largest)), 1.0)
    # A rank that logs no times has had others' places in its sums nevertheless.
    rest = {name: pair for name, pair in totals.items() if not name.startswith(_PLACES)}
    return rest, {name for name in partial if not name.startswith(_PLACES)}


def _place(name: str, rank: int) -> str:
    return f'{_PLACES}{name} {rank}'


def _mean(pair: tuple[float, float]) -> float:
    total, weight = pair
    return total / weight if weight else 0.0
