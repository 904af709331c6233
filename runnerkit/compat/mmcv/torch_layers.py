"""Classes of torch under MMCV's names, and what MMCV asks of torch: its build, its devices, whether it traces."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import SyncBatchNorm
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeMixin
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.pooling import _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _AvgPoolNd, _MaxPoolNd
from torch.utils.data import DataLoader

from runnerkit.utils.env import cuda_home as _get_cuda_home


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


def is_jit_tracing() -> bool:
    """Whether the calling code is being traced by `torch.jit.trace`."""
    # If torch is not imported, nothing is traced.
    torch = sys.modules.get('torch')
    return bool(torch is not None and torch.jit.is_tracing())


def jit(
    func: Callable[..., Any] | None = None,
    check_input: Any = None,
    full_shape: bool = True,
    derivate: bool = False,
    coderize: bool = False,
    optimize: bool = False,
) -> Callable[..., Any]:
    """A decorator that does not change the function.

    MMCV's compiled functions under SenseTime's framework Parrots, and did nothing under torch. Use `torch.compile` to
    compile a function.

    Args:
        func: the function; None if the decorator is used with arguments.
        check_input: not used, like the rest.
        full_shape: not used.
        derivate: not used.
        coderize: not used.
        optimize: not used.
    """
    return (lambda test: test) if func is None else func


def skip_no_elena(func: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that does not change the test; MMCV's skips it under Parrots without its compiler."""
    return func
