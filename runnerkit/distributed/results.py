"""Collects the predictions of all ranks, each for its share of a data set."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from torch import distributed as dist

from runnerkit.distributed.collectives import barrier, broadcast_object, gather_objects
from runnerkit.distributed.info import get_dist_info

_ABSENT = object()


def collect_results(part: Sequence[Any], size: int) -> list[Any] | None:
    """Return all ranks' results in the order of the samples on rank 0; None on the others.

    Args:
        part: this rank's results, for the samples ``rank``, ``rank + world_size`` … in this order.
        size: the number of samples; results of samples that were added to make shares equal are dropped.
    """
    parts = gather_objects(list(part))
    return in_order(parts, size) if parts else None


def collect_results_cpu(result_part: Sequence[Any], size: int, tmpdir: str | None = None) -> list[Any] | None:
    """`collect_results` without GPU memory: through gloo, or through files if gloo is not the backend.

    Args:
        result_part: as in `collect_results`.
        size: as in `collect_results`.
        tmpdir: a folder that all ranks see; if given, files are used in any case. It is created, and removed at the
            end.
    """
    rank, world_size = get_dist_info()
    if tmpdir is None and (world_size == 1 or dist.get_backend() == 'gloo'):
        return collect_results(result_part, size)
    folder = Path(broadcast_object(_new_folder() if tmpdir is None and rank == 0 else str(tmpdir)))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f'part_{rank}.pkl').write_bytes(pickle.dumps(list(result_part)))
    barrier()
    if rank != 0:
        return None
    parts = [pickle.loads((folder / f'part_{i}.pkl').read_bytes()) for i in range(world_size)]
    shutil.rmtree(folder)
    return in_order(parts, size)


def collect_results_gpu(result_part: Sequence[Any], size: int) -> list[Any] | None:
    """`collect_results`, under MMCV's name."""
    return collect_results(result_part, size)


def in_order(parts: Sequence[Sequence[Any]], size: int) -> list[Any]:
    """Interleave the parts (the first of each, the second of each …) and return the first ``size`` items."""
    mixed = [each for row in zip_longest(*parts, fillvalue=_ABSENT) for each in row if each is not _ABSENT]
    return mixed[:size]


def _new_folder() -> str:
    # In the current folder, because all machines are more likely to see it than the folder for temporary files.
    os.makedirs('.dist_test', exist_ok=True)
    return tempfile.mkdtemp(dir=os.path.abspath('.dist_test'))
