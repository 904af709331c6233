"""The range test: rates, where it stops, what it leaves."""

import copy
import math

import pytest
import torch
from support import Tiny, loader, tiny_runner, weights
from torch import nn

from runnerkit.flow import Context, Options
from runnerkit.flow.look.find_lr import FindLr, RangeTest, range_test
from runnerkit.hooks import Fp16OptimizerHook, OptimizerHook


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
    assert not runner.optimizer._optimizer_step_post_hooks
    assert all(parameter.grad is None for parameter in runner.model.parameters())


def test_each_pass_over_the_data_has_an_order_of_its_own():
    class Sees(Tiny):
        def __init__(self):
            super().__init__()
            self.seen = []

        def train_step(self, data, optimizer, **kwargs):
            self.seen.append(data[0][:, 2].tolist())
            return super().train_step(data, optimizer)

    runner = tiny_runner(model=Sees(), max_epochs=1)
    range_test(runner, loader(8), 1e-5, 1e-4, 4)
    seen = runner.model.seen
    assert len(seen) == 4
    assert seen[:2] != seen[2:]


def test_groups_keep_their_ratios():
    model = Bowl()
    model.y = nn.Parameter(torch.zeros(1))
    groups = [{'params': [model.x]}, {'params': [model.y], 'lr': 0.01}]
    runner = tiny_runner(model=model, optimizer=lambda _: torch.optim.SGD(groups, lr=0.1), max_epochs=1)
    range_test(runner, [0], 1e-3, 1e-1, 3)
    assert model.rates == [pytest.approx([rate, rate / 10]) for rate in (1e-3, 1e-2, 1e-1)]


def after_one_update(model=None, hook=None):
    """The weight after an update at the learning rate 0.1, as the second loss shows it; and the model."""
    runner = bowl() if model is None else tiny_runner(model=model, optimizer=sgd, max_epochs=1)
    if hook is not None:
        runner.register_hook(hook)
    first, second, _ = range_test(runner, [0], 0.1, 0.1 + 1e-9, 3).losses
    assert first == pytest.approx(1)
    return math.sqrt((second * 0.19 - 0.09 * first) / 0.1), runner.model  # the smoothed loss has weights 0.09 and 0.1


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def test_an_update_is_that_of_the_run():
    assert after_one_update()[0] == pytest.approx(0.8)  # 1 − 0.1 · 2
    assert after_one_update(hook=OptimizerHook(grad_clip={'max_norm': 0.5}))[0] == pytest.approx(0.95)
    weight, model = after_one_update(hook=OptimizerHook(cumulative_iters=4))
    assert weight == pytest.approx(0.8)
    assert len(model.rates) == 12

    class Casts(Bowl):
        def train_step(self, data, optimizer):
            self.casts = torch.is_autocast_enabled('cpu')
            self.fp16 = getattr(self, 'fp16_enabled', None)
            return super().train_step(data, optimizer)

    for hook, casts in ((OptimizerHook(), False), (OptimizerHook(amp='bf16'), True), (Fp16OptimizerHook(), False)):
        weight, model = after_one_update(Casts(), hook)
        assert weight == pytest.approx(0.8)
        assert model.casts == casts

    class Steps(Bowl):
        def train_step(self, data, optimizer):
            outputs = super().train_step(data, optimizer)
            optimizer.zero_grad()
            outputs['loss'].backward()
            optimizer.step()
            return outputs

    assert after_one_update(Steps())[0] == pytest.approx(0.8)


def test_the_modes_of_the_modules_are_as_before():
    runner = tiny_runner(max_epochs=1)
    runner.model.eval()
    runner.model.head.train()
    range_test(runner, loader(8), 1e-3, 1.0, 3)
    assert [name for name, module in runner.model.named_modules() if module.training] == ['head']


def test_what_cannot_be_tested():
    with pytest.raises(ValueError, match='0 < from < to'):
        range_test(bowl(), [0], 1.0, 0.1, 10)
    with pytest.raises(TypeError, match='the runner has none'):
        range_test(tiny_runner(optimizer=lambda model: None, max_epochs=1), [0], 0.1, 1, 10)
    runner = bowl()
    runner.model.x.data.fill_(math.nan)
    with pytest.raises(ValueError, match='explodes at once, at 0.1'):
        range_test(runner, [0], 0.1, 1, 10)


@pytest.mark.parametrize('losses', [[3.0, 2.0, 4.0, 3.5, 2.5], [3.0, 4.5, 4.6, 3.9, 3.6, 2.9]])
def test_noise_gives_no_advice(losses):
    noise = RangeTest([0.1, 1, 10, 100, 1000, 10000][: len(losses)], losses, False)
    assert noise.steepest is None
    assert 'too noisy to find' in str(noise)
    assert 'optimizer.lr=' not in str(noise)


def test_a_loss_that_falls_while_it_explodes_gives_no_rate():
    found = RangeTest([0.1, 1, 10, 100, 1000, 10000], [3.0, 2.5, 2.0, 9.0, 3.0, 2.1], True)
    assert (found.steepest, found.lowest) == (1, 10)


def test_the_stage_tests_the_entry_that_trains():
    runner = tiny_runner(model=Tiny(), max_epochs=1)
    context = Context({}, Options(), runner=runner, loaders=[loader(4), loader(8)], workflow=[('val', 1), ('train', 1)])
    FindLr(context, 1e-3, 1e-1, 4).run(context)
    assert len(context['range_test'].rates) == len(runner.model.losses) == 4
