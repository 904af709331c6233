"""Accelerators that are not CUDA's: Cambricon's MLU, Ascend's NPU, Apple's MPS."""

from runnerkit.compat.mmcv.device import ipu, mlu, mps, npu
from runnerkit.compat.mmcv.device.scatter_gather import scatter, scatter_kwargs
from runnerkit.compat.mmcv.device.utils import get_device

__all__ = ['get_device', 'ipu', 'mlu', 'mps', 'npu', 'scatter', 'scatter_kwargs']
