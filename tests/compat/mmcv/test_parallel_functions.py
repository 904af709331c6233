"""Copies to devices."""

import pytest
import torch

from runnerkit.compat.mmcv.parallel_functions import Scatter, get_input_device, scatter, synchronize_stream

X = torch.zeros(2, 2)
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')


@pytest.mark.parametrize('given', [X, [X], [[X]], []])
def test_tensors_on_the_cpu_are_on_device_minus_one(given):
    assert get_input_device(given) == -1


def test_tensors_stay_where_they_are():
    other = torch.ones(1)
    assert scatter(X, [-1]) is X
    assert scatter([X, [other]], [-1])[1][0] is other
    assert scatter([X, other], [-1, -1]) == [X, other]
    assert Scatter.forward([-1], X) == (X,)
    assert Scatter.forward([-1], [X, other]) == (X, other)


@pytest.mark.parametrize('given', [5, (X,), [X, 'a']])
def test_nothing_else_is_brought_to_a_device(given):
    for call in (lambda: scatter(given, [-1]), lambda: Scatter.forward([-1], given)):
        with pytest.raises(TypeError, match='Unknown type .*cpu_only=True'):
            call()


@pytest.mark.parametrize('given', [5, (X,), [X, 'a']])
def test_nothing_else_has_a_device(given):
    with pytest.raises(TypeError, match='Unknown type'):
        get_input_device(given)


def test_nothing_else_is_waited_for():
    with pytest.raises(TypeError, match='Unknown type'):
        synchronize_stream(5, [0], [None])


@NEEDS_GPU
def test_to_a_gpu_on_a_stream_of_its_own():
    stream = torch.cuda.Stream()
    moved = scatter([torch.ones(2).pin_memory(), [X]], [0], [stream])
    synchronize_stream(moved, [0], [stream])
    assert get_input_device(moved) == get_input_device([X, moved]) == 0
    assert moved[0].sum().item() == 2
    assert Scatter.forward([0], X)[0].device == torch.device('cuda', 0)
