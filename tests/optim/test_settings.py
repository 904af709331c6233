"""Optimizers, schedules and clipping that are made in Python refuse NaN and infinite settings."""

import math

import pytest
import torch
from support import Tiny, loader, tiny_runner

from runnerkit.hooks import EMAHook, OptimizerHook
from runnerkit.hooks.lr_updater import (
    CyclicLrUpdaterHook,
    OneCycleLrUpdaterHook,
    PolyLrUpdaterHook,
    StepLrUpdaterHook,
)
from runnerkit.hooks.momentum_updater import StepMomentumUpdaterHook
from runnerkit.hooks.torch_scheduler import TorchLrUpdaterHook
from runnerkit.optim import build_optimizer
from runnerkit.runner import EpochBasedRunner

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ('settings', 'key'),
    [
        ({'type': 'SGD', 'lr': NAN}, 'lr'),
        ({'type': 'SGD', 'lr': INF}, 'lr'),
        ({'type': 'SGD', 'lr': torch.tensor(NAN)}, 'lr'),
        ({'type': 'SGD', 'lr': 0.1, 'momentum': NAN}, 'momentum'),
        ({'type': 'SGD', 'lr': 0.1, 'weight_decay': NAN}, 'weight_decay'),
        ({'type': 'AdamW', 'eps': INF}, 'eps'),
        ({'type': 'SGD', 'lr': 0.1, 'paramwise_cfg': {'custom_keys': {'head': {'lr_mult': NAN}}}}, 'lr'),
    ],
)
def test_optimizers(settings, key):
    with pytest.raises(ValueError, match=rf'{settings["type"]}: {key} must be a finite number, but got (nan|inf)'):
        build_optimizer(Tiny(), settings)
    if 'paramwise_cfg' not in settings:
        options = {name: value for name, value in settings.items() if name != 'type'}
        model = Tiny()
        by_hand = getattr(torch.optim, settings['type'])(model.parameters(), **options)
        for optimizer in (by_hand, {'all': by_hand}):
            with pytest.raises(ValueError, match='must be a finite number'):
                EpochBasedRunner(model, optimizer=optimizer, max_epochs=1)


def test_a_setting_of_another_optimizer_may_be_infinite():
    class Grows(torch.optim.SGD):
        def __init__(self, params, lr):
            super().__init__(params, lr)
            self.param_groups[0]['growth_rate'] = INF

    model = Tiny()
    EpochBasedRunner(model, optimizer=Grows(model.parameters(), 0.1), max_epochs=1)


@pytest.mark.parametrize(
    'make',
    [
        lambda: StepLrUpdaterHook(step=[1], gamma=NAN),
        lambda: PolyLrUpdaterHook(min_lr=NAN),
        lambda: CyclicLrUpdaterHook(target_ratio=(INF, 1e-4)),
        lambda: OneCycleLrUpdaterHook(max_lr=NAN),
        lambda: TorchLrUpdaterHook('CosineAnnealingLR', T_max=3, eta_min=NAN),
        lambda: StepMomentumUpdaterHook(step=1, gamma=INF),
        lambda: PolyLrUpdaterHook(warmup='linear', warmup_iters=2, warmup_ratio=NAN),
        lambda: OptimizerHook(grad_clip={'max_norm': NAN}),
        lambda: OptimizerHook(grad_clip={'max_norm': 1.0, 'norm_type': NAN}),
        lambda: OptimizerHook(amp='fp16', loss_scale=INF),
        lambda: EMAHook(momentum=NAN),
        lambda: EMAHook(decay_warm_up=NAN),
    ],
)
def test_hooks(make):
    runner = tiny_runner(max_epochs=1)
    with pytest.raises(ValueError, match='nan|inf'):
        runner.register_hook(make())
        runner.run([loader(4)], [('train', 1)])
    assert runner.model.losses == []


def test_a_limit_without_a_limit_and_the_largest_value_are_legal():
    runner = tiny_runner(max_epochs=1)
    runner.register_hook(OptimizerHook(grad_clip={'max_norm': INF, 'norm_type': INF}))
    runner.run([loader(4)], [('train', 1)])
    assert math.isfinite(runner.log_buffer.val_history['grad_norm'][0])


def test_a_schedule_of_the_user_may_hold_infinities_but_no_nan():
    class Mine(StepLrUpdaterHook):
        lowest = INF

        def __init__(self, start):
            super().__init__(step=[1])
            self.start = start

    tiny = tiny_runner(max_epochs=1)
    tiny.register_hook(Mine(INF))
    tiny.run([loader(4)], [('train', 1)])
    tiny = tiny_runner(max_epochs=1)
    tiny.register_hook(Mine(NAN))
    with pytest.raises(ValueError, match='Mine: start must be a finite number'):
        tiny.run([loader(4)], [('train', 1)])
