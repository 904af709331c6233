"""Classes of torch under MMCV's names, and functions about torch's build."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import SyncBatchNorm
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeMixin
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.pooling import (
    _AdaptiveAvgPoolNd,
    _AdaptiveMaxPoolNd,
    _AvgPoolNd,
    _MaxPoolNd,
)
from torch.utils.data import DataLoader

from runnerkit.utils.env import cuda_home as _get_cuda_home

__all__ = [
    'TORCH_VERSION',
    'DataLoader',
    'PoolDataLoader',
    'SyncBatchNorm',
    '_AdaptiveAvgPoolNd',
    '_AdaptiveMaxPoolNd',
    '_AvgPoolNd',
    '_BatchNorm',
    '_ConvNd',
    '_ConvTransposeMixin',
    '_InstanceNorm',
    '_MaxPoolNd',
    '_get_cuda_home',
    'get_build_config',
    'is_rocm_pytorch',
    'torch_meshgrid',
]

TORCH_VERSION = torch.__version__
PoolDataLoader = DataLoader

# Importing their module imports setuptools and searches for a compiler.
_FOR_EXTENSIONS = ('BuildExtension', 'CppExtension', 'CUDAExtension')


def __getattr__(name: str) -> Any:
    if name in _FOR_EXTENSIONS:
        return getattr(import_module('torch.utils.cpp_extension'), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def is_rocm_pytorch() -> bool:
    """Whether torch is built for AMD GPUs and their compiler is installed."""
    return torch.version.hip is not None and import_module('torch.utils.cpp_extension').ROCM_HOME is not None


def get_build_config() -> str:
    """Return the build configuration of torch."""
    return torch.__config__.show()


def torch_meshgrid(*tensors: Tensor) -> tuple[Tensor, ...]:
    """`torch.meshgrid` with matrix indexing: the first tensor varies along the first axis."""
    return torch.meshgrid(*tensors, indexing='ij')


# MMCV uses these functions to choose between the classes of torch and those of another framework.


def _get_conv() -> tuple[type, ...]:
    return _ConvNd, _ConvTransposeMixin


def _get_dataloader() -> tuple[type, ...]:
    return DataLoader, PoolDataLoader


def _get_extension() -> tuple[Any, ...]:
    return tuple(__getattr__(name) for name in _FOR_EXTENSIONS)


def _get_norm() -> tuple[type, ...]:
    return _BatchNorm, _InstanceNorm, SyncBatchNorm


def _get_pool() -> tuple[type, ...]:
    return _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _AvgPoolNd, _MaxPoolNd
