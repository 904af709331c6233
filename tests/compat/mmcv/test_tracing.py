"""Tracing, and decorators that do nothing."""

import pytest
import torch

from runnerkit.compat.mmcv.torch_layers import is_jit_tracing, jit, skip_no_elena


@pytest.mark.filterwarnings('ignore:.*torch.jit.trace:DeprecationWarning')
def test_tracing_is_noticed():
    seen = []

    def double(x):
        seen.append(is_jit_tracing())
        return x * 2

    torch.jit.trace(double, torch.ones(1), check_trace=False)
    double(torch.ones(1))
    assert seen == [True, False]


def test_the_decorators_leave_a_function_as_it_is():
    def work(): ...

    assert jit(work) is work
    assert jit(check_input=bool, full_shape=False, derivate=True, coderize=True, optimize=True)(work) is work
    assert skip_no_elena(work) is work
