"""What this machine has: an accelerator (CUDA, ROCm, which torch calls ``cuda``, XPU, MPS) or none, and backends."""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed as dist

from runnerkit.utils.suggest import suggestion


def accelerator() -> str | None:
    """The type of this machine's accelerator: ``'cuda'``, ``'xpu'``, ``'mps'`` …; None if only the CPU can be used."""
    if torch.cuda.is_available():
        return 'cuda'
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return None if found is None else found.type


def device_count(kind: str) -> int:
    """How many devices of the type ``kind`` there are; 1 for the CPU."""
    if kind == 'cpu':
        return 1
    return int(getattr(torch, kind).device_count()) if hasattr(torch, kind) else 0


def use_device(kind: str, index: int) -> None:
    """Make device ``index`` of the type ``kind`` the current one, where there are several to choose from."""
    if kind not in ('cpu', 'mps'):
        getattr(torch, kind).set_device(index)


def current_index(kind: str) -> int | None:
    """The number of the current device of the type ``kind``; None where devices of that type have no number."""
    return None if kind in ('cpu', 'mps') else int(getattr(torch, kind).current_device())


def check_backend(backend: Any) -> None:
    """Check that this torch has ``backend``; nccl means the one that fits, see `init_dist`."""
    if not isinstance(backend, str):
        raise TypeError(f"backend must be a name such as 'gloo' or 'nccl', but got {backend!r}")
    known = [name for name in dist.Backend.backend_list if name != dist.Backend.UNDEFINED]
    here = [name for name in known if dist.is_backend_available(name)]
    names = ', '.join(name for name in here if name != 'fake')  # which is for tests
    for part in backend.lower().split(','):
        name = part.rpartition(':')[2].strip()
        if name in here or backend == 'nccl':
            continue
        what = f'torch was built without the backend {name!r}' if name in known else f'there is no backend {name!r}'
        hint = '' if name in known else suggestion(name, known)
        raise ValueError(f"{what}{hint or ';'} torch has {names} here, and 'nccl' always means what fits")
