"""Wrappers for accelerators, with torch's own `meta` device standing in for one."""

import pytest
import torch
from support import Tiny
from torch import nn

from runnerkit.compat.mmcv.device.wrappers import AcceleratorDataParallel, AcceleratorDistributedDataParallel
from runnerkit.parallel import DataContainer, is_module_wrapper


class OnMeta(AcceleratorDataParallel):
    kind = 'meta'
    package = 'nothing'


class Steps(nn.Linear):
    def train_step(self, data, optimizer, **kwargs):
        return data, optimizer, kwargs


def test_model_and_batches_are_brought_there():
    model = OnMeta(Steps(2, 2), device_ids=[0])
    assert is_module_wrapper(model)
    assert (model.src_device_obj, model.device_ids, model.dim) == (torch.device('meta', 0), [0], 0)
    assert {parameter.device.type for parameter in model.parameters()} == {'meta'}
    data, optimizer, kwargs = model.train_step({'x': DataContainer([torch.ones(2)])}, 'sgd', more=torch.ones(1))
    assert (data['x'].device.type, optimizer, kwargs['more'].device.type) == ('meta', 'sgd', 'meta')
    assert model(torch.ones(1, 2)).device.type == 'meta'
    kept, _, _ = model.train_step(DataContainer([[torch.ones(1)]], cpu_only=True), None)
    assert kept[0].device.type == 'cpu'
    assert OnMeta(Steps(2, 2), dim=1).dim == 1


def test_a_device_that_torch_does_not_know():
    class Elsewhere(AcceleratorDataParallel):
        kind = 'nowhere'
        package = 'torch_nowhere'

    with pytest.raises(RuntimeError, match="Elsewhere needs a device 'nowhere', .* install and import torch_nowhere"):
        Elsewhere(Tiny())


def test_several_processes_bring_batches_to_their_own_device(monkeypatch):
    from runnerkit.compat.mmcv.device import scatter_gather

    monkeypatch.setattr(scatter_gather, 'get_device', lambda: 'meta')
    wrapper = AcceleratorDistributedDataParallel.__new__(AcceleratorDistributedDataParallel)
    nn.Module.__init__(wrapper)
    wrapper.dim = 0
    for bring in (lambda *a: wrapper.scatter(*a, [1]), lambda *a: wrapper.to_kwargs(*a, 1)):
        inputs, kwargs = bring((torch.ones(1),), {'a': DataContainer([torch.ones(1)])})
        assert (inputs[0][0].device, kwargs[0]['a'].device) == (torch.device('meta'),) * 2
