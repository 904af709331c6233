"""Who keeps the others waiting: the largest time of all ranks, found by the collective that sums what is logged."""

from __future__ import annotations

from collections.abc import Mapping

from runnerkit.distributed.collectives import reduce_named_sums_and_row
from runnerkit.distributed.info import get_dist_info

#: The names of times that are compared.
TIMES = ('time', 'data_time')

#: All names of times that a log has.
NAMES = tuple(f'{name}{ending}' for name in TIMES for ending in ('', '_max', '_max_rank'))

Sums = Mapping[str, tuple[float, float]]


def reduce_and_find_slowest(sums: Sums) -> tuple[dict[str, tuple[float, float]], set[str]]:
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
