"""The wrapper for one device."""

import pytest
import torch
from torch import nn

from runnerkit.parallel import DataContainer, MMDataParallel, is_module_wrapper, unwrap

CUDA = pytest.param('cuda', marks=pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU'))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, x, scale=1.0):
        return self.layer(x) * scale

    def train_step(self, data, optimizer, **kwargs):
        return {'device': data['x'].device.type, 'optimizer': optimizer, **kwargs}

    def val_step(self, data, optimizer=None):
        return data['x'].device.type

    def gen_step(self, data, optimizer):
        return 'gen', data['x'].device.type


def wrap(device, net):
    return MMDataParallel(net, device_ids=[0] if device == 'cuda' else [-1])


@pytest.mark.parametrize('device', ['cpu', CUDA])
def test_steps_get_their_batch_on_the_device_and_everything_else_as_it_is(device):
    model = wrap(device, Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = {'x': torch.ones(1, 2)}
    assert model.train_step(batch, optimizer, extra=3) == {'device': device, 'optimizer': optimizer, 'extra': 3}
    assert model.val_step(batch, optimizer) == device
    assert model.val_step(batch) == device
    assert model.gen_step(batch, None) == ('gen', device)
    assert model(torch.ones(1, 2), scale=2.0).device.type == device
    assert batch['x'].device.type == 'cpu'


def test_forward_is_the_models_call():
    net = Net()
    x = torch.randn(3, 2)
    assert torch.equal(MMDataParallel(net)(x, scale=2.0), net(x) * 2)


@pytest.mark.parametrize('device_ids', [[], (), [-1]])
def test_it_is_a_wrapper_with_torchs_names(device_ids):
    net = Net()
    model = MMDataParallel(net, device_ids=device_ids)
    assert isinstance(model, nn.parallel.DataParallel)
    assert is_module_wrapper(model)
    assert unwrap(model) is net
    assert list(model.state_dict()) == ['module.layer.weight', 'module.layer.bias']
    assert (model.device_ids, model.dim, model.src_device_obj) == ([], 0, torch.device('cpu'))


def test_what_the_model_has_not_the_wrapper_has_not():
    model = MMDataParallel(Net())
    assert not hasattr(model, 'dis_step')
    assert not hasattr(model, 'anything')
    with pytest.raises(AttributeError):
        MMDataParallel(nn.Linear(1, 1)).train_step({}, None)


def test_several_devices_are_refused_with_the_way_out():
    with pytest.raises(ValueError, match='MMDataParallel supports one device only.*torchrun'):
        MMDataParallel(Net(), device_ids=[0, 1])


class Taking(nn.Module):
    def forward(self, *args, **kwargs):
        return args, kwargs

    train_step = val_step = forward


@pytest.mark.parametrize('name', ['__call__', 'train_step', 'val_step'])
def test_containers_are_unpacked(name):
    call = getattr(MMDataParallel(Taking(), device_ids=[-1]), name)
    x = torch.ones(1)
    batch = {'img': DataContainer([x]), 'meta': DataContainer([['m']], cpu_only=True), 'points': [DataContainer([x])]}
    assert call(batch, None, boxes=DataContainer([[x]])) == (
        ({'img': x, 'meta': ['m'], 'points': [x]}, None),
        {'boxes': [x]},
    )
    assert call() == ((), {})


def test_subclasses_may_deal_out_in_their_own_way():
    class Own(MMDataParallel):
        def scatter(self, inputs, kwargs, device_ids):
            return (('own', *inputs),), ({'devices': device_ids},)

    assert Own(Taking(), device_ids=[-1]).train_step(1) == (('own', 1), {'devices': [-1]})


def test_what_is_wrong_may_be_caught_as_with_mmcv():
    with pytest.raises(AssertionError):
        MMDataParallel(Net(), device_ids=[0, 1])


def test_what_a_container_keeps_on_the_cpu_stays_there():
    class Elsewhere(MMDataParallel):
        def _model_device(self):
            return torch.device('meta')

    class Places(nn.Module):
        def train_step(self, data, optimizer):
            return {name: value.device.type for name, value in data.items()}

    x = torch.ones(2)
    batch = {'img': DataContainer([x]), 'boxes': DataContainer([x], cpu_only=True), 'y': x}
    places = Elsewhere(Places(), device_ids=[-1]).train_step(batch, None)
    assert places == {'img': 'meta', 'boxes': 'cpu', 'y': 'meta'}
