"""Which accelerator this machine has."""

from __future__ import annotations

from runnerkit.compat.mmcv.torch_layers import IS_CUDA_AVAILABLE, IS_MLU_AVAILABLE, IS_MPS_AVAILABLE, IS_NPU_AVAILABLE


def get_device() -> str:
    """Return the kind of device to train on: the first available one of npu, cuda, mlu and mps, else cpu."""
    available = {
        'npu': IS_NPU_AVAILABLE,
        'cuda': IS_CUDA_AVAILABLE,
        'mlu': IS_MLU_AVAILABLE,
        'mps': IS_MPS_AVAILABLE,
    }
    return next((kind for kind, there in available.items() if there), 'cpu')
