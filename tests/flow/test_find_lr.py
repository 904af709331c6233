"""The range test: rates, where it stops, what it leaves."""

import copy
import math

import pytest
import torch
from support import Tiny, loader, tiny_runner, weights
from torch import nn

from runnerkit.flow import Context, Options
from runnerkit.flow.find_lr import FindLr, RangeTest, picture, range_test


class Bowl(nn.Module):
    """The loss ``x²``, for which gradient descent explodes at learning rates above 1."""

    def __init__(self):
        super().__init__()
        self.x, self.rates = nn.Parameter(torch.tensor(1.0)), []

    def train_step(self, data, optimizer):
        self.rates.append([group['lr'] for group in optimizer.param_groups])
        loss = self.x**2
        return {'loss': loss, 'log_vars': {}, 'num_samples': 1}


def bowl(**options):
    model = Bowl()
    return tiny_runner(model=model, optimizer=lambda _: torch.optim.SGD(model.parameters(), lr=0.1), max_epochs=1)


def test_rates_grow_by_a_factor_until_the_loss_explodes():
    runner = bowl()
    found = range_test(runner, [0, 1], 1e-3, 100.0, 101)
    assert found.rates[:3] == pytest.approx([1e-3, 1e-3 * 10**0.05, 1e-3 * 10**0.1])
    assert found.diverged
    assert 1 < found.rates[-1] < 10
    assert 0.01 < found.steepest < 1 < found.lowest <= found.rates[-1]
    assert runner.model.x == 1
    assert runner.optimizer.param_groups[0]['lr'] == 0.1
    text = str(found)
    assert 'there the loss explodes' in text
    assert f'Try optimizer.lr={found.steepest:.2g}' in text
    assert not range_test(runner, [0], 1e-4, 1e-3, 10).diverged


def test_weights_buffers_and_the_optimizer_are_as_before():
    runner = tiny_runner(max_epochs=1)
    before, state = weights(runner.model), copy.deepcopy(runner.optimizer.state_dict())
    range_test(runner, loader(8), 1e-3, 1.0, 5)
    assert torch.equal(weights(runner.model), before)
    assert runner.optimizer.state_dict() == state
    assert all(parameter.grad is None for parameter in runner.model.parameters())


def test_groups_keep_their_ratios():
    model = Bowl()
    model.y = nn.Parameter(torch.zeros(1))
    groups = [{'params': [model.x]}, {'params': [model.y], 'lr': 0.01}]
    runner = tiny_runner(model=model, optimizer=lambda _: torch.optim.SGD(groups, lr=0.1), max_epochs=1)
    range_test(runner, [0], 1e-3, 1e-1, 3)
    assert model.rates == [pytest.approx([rate, rate / 10]) for rate in (1e-3, 1e-2, 1e-1)]


def test_what_cannot_be_tested():
    with pytest.raises(ValueError, match='0 < from < to'):
        range_test(bowl(), [0], 1.0, 0.1, 10)
    with pytest.raises(TypeError, match='the runner has none'):
        range_test(tiny_runner(optimizer=lambda model: None, max_epochs=1), [0], 0.1, 1, 10)
    runner = bowl()
    runner.model.x.data.fill_(math.nan)
    with pytest.raises(ValueError, match='from the beginning, at 0.1'):
        range_test(runner, [0], 0.1, 1, 10)


def test_the_picture(tmp_path):
    pytest.importorskip('matplotlib')
    picture(RangeTest([0.1, 1, 10, 100], [3.0, 2.0, 1.0, 4.0], True), tmp_path / 'lr.png')
    assert (tmp_path / 'lr.png').read_bytes().startswith(b'\x89PNG')


def test_the_stage_tests_the_entry_that_trains():
    runner = tiny_runner(model=Tiny(), max_epochs=1)
    context = Context({}, Options(), runner=runner, loaders=[loader(4), loader(8)], workflow=[('val', 1), ('train', 1)])
    FindLr(context, 1e-3, 1e-1, 4).run(context)
    assert len(context['range_test'].rates) == len(runner.model.losses) == 4
