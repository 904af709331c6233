"""What MMCV hands on from torch is torch's own."""

import pytest
import torch
from torch import nn
from torch.utils import cpp_extension

import runnerkit.utils as utils
from runnerkit.compat.mmcv import torch_layers


def test_classes_are_torchs_own():
    assert torch_layers.DataLoader is torch_layers.PoolDataLoader is torch.utils.data.DataLoader
    assert issubclass(nn.BatchNorm2d, torch_layers._BatchNorm)
    assert issubclass(nn.InstanceNorm2d, torch_layers._InstanceNorm)
    assert torch_layers._ConvTransposeMixin is nn.modules.conv._ConvTransposeMixin
    assert issubclass(nn.Conv2d, torch_layers._ConvNd)
    pools = {'AvgPool2d': '_AvgPoolNd', 'AdaptiveAvgPool2d': '_AdaptiveAvgPoolNd'}
    pools |= {'MaxPool2d': '_MaxPoolNd', 'AdaptiveMaxPool2d': '_AdaptiveMaxPoolNd'}
    assert all(issubclass(getattr(nn, own), getattr(torch_layers, base)) for own, base in pools.items())
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm2d(2))
    assert isinstance(converted, torch_layers.SyncBatchNorm)


def test_extensions_are_imported_when_asked_for():
    for name in ('BuildExtension', 'CppExtension', 'CUDAExtension'):
        assert getattr(utils, name) is getattr(cpp_extension, name)
        assert name not in vars(torch_layers)
    with pytest.raises(AttributeError, match="has no attribute 'CudaExtension'"):
        torch_layers.CudaExtension  # noqa: B018


def test_torchs_build(monkeypatch):
    assert torch_layers.TORCH_VERSION == torch.__version__
    assert torch_layers.get_build_config() == torch.__config__.show()
    monkeypatch.setattr(cpp_extension, 'CUDA_HOME', 'cuda')
    monkeypatch.setattr(cpp_extension, 'ROCM_HOME', 'rocm')
    monkeypatch.setattr(torch.version, 'hip', None)
    assert not torch_layers.is_rocm_pytorch()
    assert torch_layers._get_cuda_home() == 'cuda'
    monkeypatch.setattr(torch.version, 'hip', '6.0')
    assert torch_layers.is_rocm_pytorch()
    assert torch_layers._get_cuda_home() == 'rocm'


def test_meshgrid():
    rows, columns = torch_layers.torch_meshgrid(torch.arange(2), torch.arange(3))
    assert rows.tolist() == [[0, 0, 0], [1, 1, 1]]
    assert columns.tolist() == [[0, 1, 2], [0, 1, 2]]
