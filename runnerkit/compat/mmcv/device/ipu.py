"""Graphcore's IPU: only whether there is one. Its package ``poptorch`` does not support today's torch."""

from __future__ import annotations

from typing import Any

from runnerkit.compat.mmcv.torch_layers import IS_IPU_AVAILABLE

__all__ = ['IS_IPU_AVAILABLE']


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f'module {__name__!r} has no attribute {name!r}: training on IPUs needs poptorch with its torch, and '
        f'is not supported; a CUDA device, an MLU, an NPU or a Mac is'
    )
