"""Which accelerator is taken."""

import pytest

from runnerkit.compat.mmcv.device import get_device, utils


@pytest.mark.parametrize(
    'there, kind', [('', 'cpu'), ('MPS', 'mps'), ('MLU', 'mlu'), ('CUDA MPS', 'cuda'), ('NPU CUDA MLU', 'npu')]
)
def test_the_first_there_is(monkeypatch, there, kind):
    for name in ('NPU', 'CUDA', 'MLU', 'MPS'):
        monkeypatch.setattr(utils, f'IS_{name}_AVAILABLE', name in there.split())
    assert get_device() == kind
