"""Lists of tensors for accelerators, with torch's own `meta` device standing in for one."""

import pytest
import torch

from runnerkit.compat.mmcv.device._functions import Scatter, scatter


def test_tensors_in_lists_go_to_the_first_device():
    assert scatter(torch.ones(1), ['meta', 'cpu']).device.type == 'meta'
    (one, (two,)) = scatter([torch.ones(1), [torch.ones(2)]], ['meta'])
    assert (one.device.type, two.device.type, tuple(two.shape)) == ('meta', 'meta', (2,))


def test_on_the_cpu_they_stay_what_they_are():
    tensor = torch.ones(1)
    assert scatter(tensor, [-1]) is tensor
    assert Scatter.forward([-1], tensor) == (tensor,)
    assert Scatter.forward([-1], [tensor, tensor]) == (tensor, tensor)


def test_anything_else_is_refused():
    with pytest.raises(TypeError, match="Unknown type <class 'str'>"):
        scatter([torch.ones(1), 'text'], [-1])
