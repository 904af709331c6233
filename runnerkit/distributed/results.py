"""Putting together what the ranks have predicted, each for its share of a data set."""

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
    """All ranks' results in the order of the samples, on rank 0; None on the others.

    Args:
        part: this rank's: of the samples ``rank``, ``rank + world_size`` … in this order.
        size: how many samples there are; what samplers have added to make shares equal is dropped.
    """
    parts = gather_objects(list(part))
    return in_order(parts, size) if parts else None


def collect_results_cpu(result_part: Sequence[Any], size: int, tmpdir: str | None = None) -> list[Any] | None:
    """`collect_results` without a GPU's memory: through gloo, or through files where that is not the backend.

    Args:
        result_part: as in `collect_results`.
        size: as in `collect_results`.
        tmpdir: a folder that all ranks see, for files in any case; created, and removed in the end.
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
    """`collect_results` by MMCV's name for it."""
    return collect_results(result_part, size)


def in_order(parts: Sequence[Sequence[Any]], size: int) -> list[Any]:
    """The first ``size`` of: the first of each part, the second of each part, and so on; shorter parts end earlier."""
    mixed = [each for row in zip_longest(*parts, fillvalue=_ABSENT) for each in row if each is not _ABSENT]
    return mixed[:size]


def _new_folder() -> str:
    # In the current folder, since that is more likely to be seen by all machines than the one for temporary files.
    os.makedirs('.dist_test', exist_ok=True)
    return tempfile.mkdtemp(dir=os.path.abspath('.dist_test'))
