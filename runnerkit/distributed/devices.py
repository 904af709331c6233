"""The accelerator of this machine: CUDA, ROCm (which torch calls ``cuda``), XPU, MPS, or none."""

from __future__ import annotations

import torch


def accelerator() -> str | None:
    """The type of this machine's accelerator: ``'cuda'``, ``'xpu'``, ``'mps'`` …; None if only the CPU can be used."""
    if torch.cuda.is_available():
        return 'cuda'
    found = torch.accelerator.current_accelerator(check_available=True)
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
