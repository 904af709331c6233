"""Jumps of the loss are logged, ordinary noise is not."""

import math

import numpy as np
import planted
import pytest
import torch
from support import Noisy, tiny_runner

from runnerkit.data import build_dataloader
from runnerkit.hooks import HOOKS, Hook, LossJumpHook
from runnerkit.hooks.logger import LoggerHook
from runnerkit.log_buffer import LogBuffer


class Log:
    def __init__(self):
        self.warnings = []

    def warning(self, text, *args):
        self.warnings.append(text % args)


class View:
    """The little that the hook reads of a runner."""

    def __init__(self):
        self.logger, self.log_buffer, self.mode, self.work_dir, self.completed_iters = (
            Log(),
            LogBuffer(),
            'train',
            None,
            0,
        )


def jumps_in(losses, hook=None, every=1):
    """The warnings at a curve of logged losses, each the mean of ``every`` iterations."""
    view, hook = View(), LossJumpHook() if hook is None else hook
    hook.before_run(view)
    for loss in losses:
        for value in np.atleast_1d(loss):
            view.completed_iters += 1
            view.log_buffer.update({'loss': float(value)})
        view.log_buffer.average(len(np.atleast_1d(loss)))
        hook.after_log(view)
    return view.logger.warnings


def curve(kind, seed, lines=400):
    """A training curve with ordinary noise."""
    random = np.random.default_rng(seed)
    falling = 2.3 * np.exp(-np.arange(lines) / 80) + 0.1
    return {
        'normal': lambda: falling * (1 + 0.1 * random.standard_normal(lines)),
        'a batch a line': lambda: falling * random.gamma(4, 0.25, lines),
        'multiplicative': lambda: falling * np.exp(0.4 * random.standard_normal(lines)),
        'nearly zero': lambda: np.exp(-np.arange(lines) / 30) + 1e-3 * random.exponential(1, lines),
        'two players': lambda: 0.7 + 0.15 * np.sin(np.arange(lines) / 9) + 0.05 * random.standard_normal(lines),
        'heavy tails': lambda: falling * (1 + 0.05 * np.abs(random.standard_t(4, lines))),
        'constant': lambda: np.full(lines, 0.5),
        'negative': lambda: -falling + 0.05 * random.standard_normal(lines),
    }[kind]()


KINDS = (
    'normal',
    'a batch a line',
    'multiplicative',
    'nearly zero',
    'two players',
    'heavy tails',
    'constant',
    'negative',
)


@pytest.mark.parametrize('kind', KINDS)
def test_ordinary_noise_is_no_jump(kind):
    assert [jumps_in(curve(kind, seed)) for seed in range(5)] == [[]] * 5


@pytest.mark.parametrize('kind', KINDS)
def test_a_jump_is_logged_once(kind):
    losses = curve(kind, 0)
    high = 12.0
    losses[200:203] = high
    (said,) = jumps_in(losses)
    assert said.startswith(
        f'loss has jumped to {high:.4g}, most of it at iteration 201: the median of the 20 log lines'
    )


def test_it_names_the_iteration_inside_a_line():
    losses = [[1.0, 1.1, 0.9]] * 30 + [[1.0, 40.0, 1.1]] + [[1.0, 1.1, 0.9]] * 30
    (said,) = jumps_in(losses)
    assert 'at iteration 92:' in said


def test_it_names_the_iteration_inside_the_first_line_of_an_epoch():
    """Two iterations at the end of each epoch are in no line."""
    view, hook = View(), LossJumpHook()
    hook.before_run(view)
    for epoch in range(12):
        view.log_buffer.clear()
        for inner in range(1, 9):
            view.completed_iters += 1
            view.log_buffer.update({'loss': torch.tensor(50.0 if (epoch, inner) == (11, 2) else 1.0)})
            if inner in (3, 6):
                view.log_buffer.average(3)
                hook.after_log(view)
    (said,) = view.logger.warnings
    assert f'at iteration {11 * 8 + 2}:' in said


def test_first_lines_nan_and_other_values_are_not_judged():
    assert jumps_in([1.0] * 19 + [50.0]) == []
    assert jumps_in([1.0] * 30 + [math.nan, 1.0]) == []
    view, hook = View(), LossJumpHook(window=5)
    for value in [1.0] * 9 + [99.0]:
        view.log_buffer.update({'grad_norm': value})
        view.log_buffer.average(1)
        hook.after_log(view)
    view.mode = 'val'
    assert view.logger.warnings == []


def test_a_resumed_run_goes_on_with_the_same_lines():
    first, second = LossJumpHook(), LossJumpHook()
    losses = [1.0, 1.1] * 15
    assert jumps_in(losses, first) == []
    second.load_state_dict(first.state_dict())
    assert len(jumps_in([30.0], second)) == 1
    third = LossJumpHook()
    third.load_state_dict(second.state_dict())
    assert jumps_in([31.0], third) == []  # the same jump


@pytest.mark.parametrize('options', [dict(window=4), dict(window=2.5), dict(factor=0), dict(factor=math.nan)])
def test_wrong_settings_are_refused(options):
    with pytest.raises((ValueError, TypeError), match=f'{next(iter(options))} must be'):
        LossJumpHook(**options)


class Spoil(Hook):
    """Multiplies the logged loss at one iteration."""

    def after_forward(self, runner):
        if runner.iter == 33:
            runner.log_buffer.val_history['loss'][-1] = 1e6


class Silent(LoggerHook):
    def log(self, runner):
        pass


def test_it_is_called_when_a_line_is_logged(caplog):
    runner = tiny_runner(max_epochs=2)
    for hook, priority in ((Spoil(), 'NORMAL'), (Silent(2), 'VERY_LOW'), (LossJumpHook(window=5), 'LOWEST')):
        runner.register_hook(hook, priority)
    with caplog.at_level('WARNING'):
        runner.run([build_dataloader(Noisy(80), 4, 0, seed=0)], [('train', 1)])
    (said,) = [record.getMessage() for record in caplog.records if 'jumped' in record.getMessage()]
    assert 'at iteration 34' in said
    assert 'replay' not in said  # a runner from Python has no work dir


def test_a_run_by_config_says_how_to_replay_the_jump(tmp_path, caplog):
    config = planted.project(tmp_path)
    options = {'custom_hooks': [dict(type='Spoil'), dict(type='LossJumpHook', window=5)], 'runner.max_epochs': 6}
    HOOKS.register_module(name='Spoil', module=Spoil, force=True)
    with caplog.at_level('WARNING'):
        planted.train(config, tmp_path / 'run', options)
    (said,) = [record.getMessage() for record in caplog.records if 'jumped' in record.getMessage()]
    assert said.endswith(f'To replay that iteration: runnerkit replay {tmp_path / "run"} --to 33')
