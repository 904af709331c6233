"""Which kinds of accelerators can be used."""

from __future__ import annotations

import torch


def is_ipu_available() -> bool:
    """Whether Graphcore's ``poptorch`` is installed and sees a device."""
    try:
        import poptorch  # type: ignore[import-not-found]
    except ImportError:
        return False
    return bool(poptorch.ipuHardwareIsAvailable())


def is_mlu_available() -> bool:
    """Whether Cambricon's ``torch_mlu`` has been imported and sees a device."""
    return _backend_available('mlu')


def is_npu_available() -> bool:
    """Whether Ascend's ``torch_npu`` has been imported and sees a device."""
    return _backend_available('npu')


def is_mps_available() -> bool:
    """Whether this is a Mac whose GPU torch can use."""
    return torch.backends.mps.is_available()


def _backend_available(name: str) -> bool:
    backend = getattr(torch, name, None)
    return bool(backend is not None and backend.is_available())


IS_CUDA_AVAILABLE = torch.cuda.is_available()
IS_IPU_AVAILABLE = is_ipu_available()
IS_MLU_AVAILABLE = is_mlu_available()
IS_MPS_AVAILABLE = is_mps_available()
IS_NPU_AVAILABLE = is_npu_available()
