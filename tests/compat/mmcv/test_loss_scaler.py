"""A loss scale kept by hand; the course of scales is what the real MMCV 1.7.2 gave."""

import pytest
import torch
from torch import nn

from runnerkit.compat.mmcv.loss_scaler import LossScaler


def test_the_course_of_a_dynamic_scale():
    scaler = LossScaler(init_scale=8, scale_window=2)
    course = []
    for overflow in [0, 0, 1, 0, 1, 1, 1, 1, 0, 0, 0, 0]:
        scaler.update_scale(bool(overflow))
        course.append((scaler.loss_scale, scaler.last_overflow_iter))
    scales = [8, 16, 8, 8, 4, 2, 1, 1, 1, 2, 2, 4]
    overflows = [-1, -1, 2, 2, 4, 5, 6, 7, 7, 7, 7, 7]
    assert course == list(zip(scales, overflows, strict=True))
    assert scaler.cur_iter == 12


def test_a_static_scale_stays():
    scaler = LossScaler(512, mode='static')
    scaler.update_scale(True)
    scaler.update_scale(False)
    assert (scaler.loss_scale, scaler.cur_iter) == (512, 0)
    assert not scaler.has_overflow([with_grad([float('nan')])])


def with_grad(values):
    param = nn.Parameter(torch.zeros(len(values)))
    param.grad = torch.tensor(values)
    return param


OVERFLOWS = [
    ([1.0, float('inf')], True),
    ([-float('inf'), 1.0], True),
    ([float('inf'), -float('inf')], True),
    ([float('nan'), 1.0], True),
    ([1.0, -2.0], False),
]


@pytest.mark.parametrize('values, overflow', OVERFLOWS)
def test_overflows_are_seen(values, overflow):
    without = nn.Parameter(torch.zeros(1))
    assert LossScaler().has_overflow([without, with_grad([1.0]), with_grad(values)]) is overflow
    assert LossScaler._has_inf_or_nan(torch.tensor(values)) is overflow


def test_half_gradients_do_not_overflow_in_the_sum():
    assert not LossScaler._has_inf_or_nan(torch.full((4,), 60000.0).half())


def test_it_goes_on_from_its_state():
    scaler = LossScaler(scale_factor=4.0, scale_window=7)
    scaler.update_scale(True)
    state = scaler.state_dict()
    assert set(state) == {'cur_scale', 'cur_iter', 'mode', 'last_overflow_iter', 'scale_factor', 'scale_window'}
    assert state['cur_scale'] == 2**30
    other = LossScaler(mode='static')
    other.load_state_dict(state)
    assert other.state_dict() == state
    other.update_scale(True)
    assert state['cur_iter'] == 1
    with pytest.raises(KeyError):
        other.load_state_dict({'cur_scale': 1})


def test_other_modes():
    with pytest.raises(AssertionError, match="mode can only be dynamic or static, but got 'x'"):
        LossScaler(mode='x')
