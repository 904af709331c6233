"""Collects the predictions of all ranks, each for its share of a data set."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from runnerkit.distributed.collectives import barrier, gather_objects
from runnerkit.distributed.groups import cpu_group
from runnerkit.distributed.info import get_dist_info
from runnerkit.utils.small_files import open_own, own_folder

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
