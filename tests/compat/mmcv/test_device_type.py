"""Accelerators: those that torch has, and those that another library brings to it."""

import sys
from types import SimpleNamespace

import pytest
import torch

from runnerkit.compat.mmcv import torch_layers as device_type


def test_what_this_machine_has():
    assert device_type.IS_CUDA_AVAILABLE is torch.cuda.is_available()
    assert device_type.IS_MPS_AVAILABLE is torch.backends.mps.is_available()
    assert (device_type.IS_MLU_AVAILABLE, device_type.IS_NPU_AVAILABLE, device_type.IS_IPU_AVAILABLE) == (
        False,
        False,
        False,
    )


@pytest.mark.parametrize('there', [True, False])
def test_what_other_libraries_bring(monkeypatch, there):
    for name, ask in (('mlu', device_type.is_mlu_available), ('npu', device_type.is_npu_available)):
        monkeypatch.setattr(torch, name, SimpleNamespace(is_available=lambda: there), raising=False)
        assert ask() is there
    monkeypatch.setitem(sys.modules, 'poptorch', SimpleNamespace(ipuHardwareIsAvailable=lambda: there))
    assert device_type.is_ipu_available() is there
    monkeypatch.setattr(torch.backends.mps, 'is_available', lambda: there)
    assert device_type.is_mps_available() is there
