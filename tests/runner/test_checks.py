"""What a runner may be built from; the refusals themselves are in test_base_runner.py."""

import pytest
import torch
from torch import nn

from runnerkit.runner import EpochBasedRunner
from runnerkit.runner.checks import check_optimizer, check_step


def test_wrapped_models_are_judged_by_what_is_inside():
    from runnerkit.parallel import MMDataParallel

    with pytest.warns(DeprecationWarning, match='batch_processor') as caught:
        EpochBasedRunner(MMDataParallel(nn.Linear(1, 1), device_ids=[-1]), batch_processor=print, max_epochs=1)
    assert caught[0].filename == __file__
    with pytest.raises(TypeError, match='Linear has no train_step'):
        EpochBasedRunner(MMDataParallel(nn.Linear(1, 1), device_ids=[-1]), max_epochs=1)


def test_what_is_fine():
    class Steps(nn.Module):
        def train_step(self, data, optimizer): ...

    check_step(Steps(), None)
    with pytest.warns(DeprecationWarning, match='batch_processor'):
        check_step(nn.Linear(1, 1), print)
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    for each in (None, optimizer, {'a': optimizer}):
        check_optimizer(each)
