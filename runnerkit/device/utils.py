"""Which accelerator this machine has."""

from __future__ import annotations

from runnerkit.utils import devices


def get_device() -> str:
    """The kind of device to train on: the first there is of npu, cuda, mlu and mps, or cpu."""
    available = {
        'npu': devices.IS_NPU_AVAILABLE,
        'cuda': devices.IS_CUDA_AVAILABLE,
        'mlu': devices.IS_MLU_AVAILABLE,
        'mps': devices.IS_MPS_AVAILABLE,
    }
    return next((kind for kind, there in available.items() if there), 'cpu')
