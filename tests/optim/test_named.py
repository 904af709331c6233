"""Optimizers by name."""

import pytest
import torch

from runnerkit.optim.named import named_optimizers

OPTIMIZER = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)


@pytest.mark.parametrize(
    'given, named', [(None, {}), (OPTIMIZER, {'': OPTIMIZER}), ({'a': OPTIMIZER}, {'a': OPTIMIZER})]
)
def test_one_several_or_none(given, named):
    assert named_optimizers(given) == named
