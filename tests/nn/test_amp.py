"""Decorators for half precision; what is cast when is what the real MMCV 1.7.2 does."""

import importlib
import warnings
from collections import OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest
import torch
from torch import nn

from runnerkit.distributed import allreduce_grads
from runnerkit.nn import amp, auto_fp16, force_fp32, patch_norm_fp32, wrap_fp16_model
from runnerkit.nn.amp import cast_tensor_type, patch_forward_method

SINGLE, HALF = torch.float32, torch.float16
DEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'
Pair = namedtuple('Pair', 'a b')


def model_with(decorator, enabled=True):
    class Model(nn.Module):
        fp16_enabled = enabled

        @decorator
        def forward(self, x, y=None, *args, z=None, **kwargs):
            """Gives back what it got."""
            self.under_autocast = torch.is_autocast_enabled(DEVICE)
            return x, y, z, args, kwargs

    return Model()


def kinds(model, value):
    x, y, z, args, kwargs = model(value, value, value, z=value, w=value)
    return ''.join(kind.dtype == HALF and 'h' or 's' for kind in (x, y, z, *args, kwargs['w']))


CAST = [
    (auto_fp16(), 'hhsss'),
    (auto_fp16(apply_to=('x',)), 'hssss'),
    (auto_fp16(apply_to='y'), 'shsss'),
    (auto_fp16(apply_to=('z', 'w')), 'sshsh'),
    (auto_fp16(apply_to=()), 'sssss'),
    (auto_fp16(apply_to=['unknown']), 'sssss'),
    (auto_fp16(out_fp32=True), 'sssss'),
]


@pytest.mark.parametrize('decorator, expected', CAST)
def test_arguments_are_cast_to_half_by_name(decorator, expected):
    model = model_with(decorator)
    assert kinds(model, torch.ones(1)) == expected
    assert model.under_autocast
    off = model_with(decorator, enabled=False)
    assert kinds(off, torch.ones(1)) == 'sssss'
    assert not off.under_autocast


CAST_BACK = [
    (force_fp32(), 'sshhh'),
    (force_fp32(apply_to=('x',)), 'shhhh'),
    (force_fp32(apply_to=()), 'hhhhh'),
    (force_fp32(out_fp16=True), 'hhhhh'),
]


@pytest.mark.parametrize('decorator, expected', CAST_BACK)
def test_arguments_are_cast_to_single_by_name(decorator, expected):
    model = model_with(decorator)
    with torch.autocast(DEVICE, dtype=HALF):
        assert kinds(model, torch.ones(1).half()) == expected
        assert not model.under_autocast
        off = model_with(decorator, enabled=False)
        assert kinds(off, torch.ones(1).half()) == 'hhhhh'
        assert off.under_autocast


def test_a_method_is_what_it_was_where_there_is_no_flag():
    model = model_with(auto_fp16())
    del type(model).fp16_enabled
    assert kinds(model, torch.ones(1)) == 'sssss'
    assert model.forward.__doc__ == 'Gives back what it got.'


@pytest.mark.parametrize('decorator, name', [(auto_fp16(), '@auto_fp16'), (force_fp32(), '@force_fp32')])
def test_only_methods_of_modules_are_decorated(decorator, name):
    class Other:
        fp16_enabled = True

        @decorator
        def forward(self, x):
            return x

    message = f'{name} can only be used to decorate the method of those classes .*Module.*called on .*Other'
    with pytest.raises(TypeError, match=message):
        Other().forward(torch.ones(1))
    with pytest.raises(TypeError, match='called on nothing'):
        decorator(lambda: 1)()


def test_other_owners_may_be_allowed():
    class Other:
        fp16_enabled = True

        @auto_fp16(supported_types=(object,))
        def forward(self, x):
            return x

    assert Other().forward(torch.ones(1)).dtype == HALF


class Detector(nn.Module):
    """A backbone in half precision, and a loss in single precision."""

    def __init__(self):
        super().__init__()
        self.fp16_enabled = False
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 1))

    @auto_fp16(apply_to=('img',))
    def forward(self, img, target):
        self.features = self.body(img)
        return self.loss(self.features, target)

    @force_fp32(apply_to=('pred',))
    def loss(self, pred, target):
        return nn.functional.mse_loss(pred, target)


def test_a_model_trains_in_half_precision_without_warnings():
    model = Detector().to(DEVICE)
    batch = torch.ones(2, 1, 8, 8, device=DEVICE), torch.zeros(2, 1, device=DEVICE)
    wrap_fp16_model(model)
    assert model.fp16_enabled is True
    assert not hasattr(model.body, 'fp16_enabled')
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        loss = model(*batch)
        loss.backward()
    assert (model.features.dtype, loss.dtype) == (HALF, SINGLE)
    assert all(p.dtype == p.grad.dtype == SINGLE for p in model.parameters())


def test_norms_are_put_into_single_precision():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.GroupNorm(1, 2), nn.LayerNorm(2)).half()
    assert patch_norm_fp32(model) is model
    assert [part.weight.dtype for part in model] == [HALF, SINGLE, SINGLE, HALF]
    assert model[2](torch.ones(3, 2).half()).dtype == HALF


def test_a_function_is_made_to_work_in_another_type():
    seen = []

    def identity(x, y=None):
        seen.append((x.dtype, y[0].dtype))
        return x

    half = torch.ones(1).half()
    assert patch_forward_method(identity, HALF, SINGLE)(half, y=[half]).dtype == HALF
    assert patch_forward_method(identity, HALF, SINGLE, convert_output=False)(half, y=[half]).dtype == SINGLE
    assert seen == [(SINGLE, SINGLE)] * 2


def test_kinds_are_kept():
    module, array = nn.Linear(1, 1), np.ones(1)
    for same in ('text', b'bytes', array, module, 3, None):
        assert cast_tensor_type(same, SINGLE, HALF) is same
    x = torch.ones(1)
    ordered = cast_tensor_type(OrderedDict(a=x), SINGLE, HALF)
    assert (type(ordered), ordered['a'].dtype) == (OrderedDict, HALF)
    defaults = cast_tensor_type(defaultdict(list, a=x), SINGLE, HALF)
    assert (defaults['a'].dtype, defaults['new']) == (HALF, [])
    pair = cast_tensor_type(Pair(x, {x}), SINGLE, HALF)
    assert (type(pair), pair.a.dtype, next(iter(pair.b)).dtype) == (Pair, HALF, HALF)
    assert module.weight.dtype == SINGLE


def test_what_mmcv_has_in_that_module_is_here():
    importlib.import_module('runnerkit.compat')  # which adds what has no other use
    assert amp.allreduce_grads is allreduce_grads
    assert amp.LossScaler(init_scale=2).loss_scale == 2
