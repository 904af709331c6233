"""What the config says at a resume is what happens: each setting takes effect or is refused, and the log lists it."""

import copy
import logging
import math

import pytest
import torch
from support import Measured, Noisy, loader, tiny_runner, weights
from torch import nn

from runnerkit.checkpoint.conditions import changed, differs
from runnerkit.data import build_dataloader
from runnerkit.hooks import (
    CheckpointHook,
    ControlHook,
    EarlyStoppingHook,
    EMAHook,
    EvalHook,
    Fp16OptimizerHook,
    Hook,
    OptimizerHook,
    TextLoggerHook,
    build_lr_hook,
    build_momentum_hook,
)
from runnerkit.optim import build_optimizer
from runnerkit.optim.settings import (
    plain_settings,
    rescheduled,
    sets_own_rates,
    settled_group,
    why_not_settled,
    why_other_parameters,
)
from runnerkit.runner.changes import hook_settings


def update_of(runner):
    return runner.updater.updates[None]


SGD = {'type': 'SGD', 'lr': 0.1, 'momentum': 0.9}
ADAM = {'type': 'Adam', 'lr': 0.01}
DONE = 3


class Keeps(Hook):
    """A user's hook whose state holds its setting, too."""

    def __init__(self, threshold=1.0, seen=0):
        self.threshold, self.seen = threshold, seen

    def after_train_iter(self, runner):
        self.seen += 1

    def state_dict(self):
        return {'threshold': self.threshold, 'seen': self.seen}

    def load_state_dict(self, state):
        self.threshold, self.seen = state['threshold'], state['seen']


HOOKS = {
    'lr': lambda config: (build_lr_hook(config), 'VERY_HIGH'),
    'momentum': lambda config: (build_momentum_hook(config), 'HIGH'),
    'update': lambda config: (OptimizerHook(**config), 'ABOVE_NORMAL'),
    'fp16': lambda config: (Fp16OptimizerHook(**config), 'ABOVE_NORMAL'),
    'ema': lambda config: (EMAHook(**config), 'NORMAL'),
    'stopping': lambda config: (EarlyStoppingHook(**config), 'NORMAL'),
    'keeps': lambda config: (Keeps(**config), 'NORMAL'),
    'control': lambda config: (ControlHook(**config), 'NORMAL'),
    'checkpoint': lambda config: (CheckpointHook(by_epoch=False, **config), 'NORMAL'),
    'evaluation': lambda config: (EvalHook(loader(8), by_epoch=False, **config), 'LOW'),
}


def start(folder, settings, checkpoint=None, wins=True, done=DONE):
    """A runner with these settings; resumed and run to its end if there is a checkpoint, else run to ``done``."""
    torch.manual_seed(0)
    settings = {'optimizer': SGD, 'update': {}, 'checkpoint': {'interval': 3}, **copy.deepcopy(settings)}
    optimizer, limits = settings.pop('optimizer'), {'max_iters': 8, **settings.pop('limits', {})}
    if limits['max_iters'] is None:
        del limits['max_iters']
    data = settings.pop('data', None) or loader()
    workflow = settings.pop('workflow', [('train', 1)])
    runner = tiny_runner(
        model=settings.pop('model', Measured)(),
        work_dir=folder,
        optimizer=lambda m: build_optimizer(m, optimizer),
        **limits,
    )
    for name, value in settings.items():
        if value is not None:
            runner.register_hook(*HOOKS[name](value))
    if checkpoint is not None:
        runner.config_wins = wins
        runner.resume(checkpoint)
    runner.register_hook(Stops(8 if checkpoint else done))
    runner.run([data] * len(workflow), workflow)
    return runner


class Stops(Hook):
    """Ends the run after so many iterations, and notes what they were made with."""

    def __init__(self, after):
        self.lrs, self.last = [], after

    def after_train_iter(self, runner):
        self.lrs.append(optimizers(runner)[0].param_groups[0]['lr'])
        if runner.iter + 1 == self.last:
            runner.stop('enough')


def told(caplog):
    return '\n'.join(
        record.getMessage()
        for record in caplog.records
        if getattr(record, 'exactness', False) and record.levelno >= logging.WARNING
    )


def group(runner, index=0):
    return runner.optimizer.param_groups[index]


def found(runner, kind):
    return next(hook for hook in runner.hooks if type(hook).__name__ == kind)


def sgd(**changes):
    return {'optimizer': {**SGD, **changes}}


def adam(**changes):
    return {'optimizer': {**ADAM, **changes}}


def setting(key, value):
    """That all parameter groups have it."""
    return lambda runner: all(each[key] == value for each in runner.optimizer.param_groups)


def lrs(*values):
    """The learning rates of the iterations after the resume."""
    return lambda runner: found(runner, 'Stops').lrs[: len(values)] == pytest.approx(values)


def attribute(kind, key, value):
    return lambda runner: getattr(found(runner, kind), key) == value


STEP = {'policy': 'step', 'step': [2, 4], 'by_epoch': False}
COSINE = {'policy': 'CosineAnnealing', 'min_lr': 0.0, 'by_epoch': False}
CYCLE = {'policy': 'OneCycle', 'max_lr': 1.0}
BIASES = {'paramwise_cfg': {'bias_lr_mult': 2.0}}
MOMENTUM = {'policy': 'step', 'step': [2, 4], 'by_epoch': False, 'gamma': 0.5}
PLATEAU = {'policy': 'ReduceLROnPlateau', 'monitor': 'train/loss', 'by_epoch': False, 'patience': 0, 'threshold': 1e9}
BEST = {'interval': 1, 'save_best': 'error'}

#: Settings before, after; what is true of the resumed run; words of the table. Three iterations are done.
EFFECTIVE = {
    'lr': (sgd(), sgd(lr=0.001), lrs(0.001), ['optimizer: lr', '0.1', '0.001', 'are rescaled']),
    'lr of 0': (sgd(lr=0.0), sgd(lr=0.2), lrs(0.2), ['optimizer: lr', '0.0', '0.2']),
    'lr to 0': (sgd(), sgd(lr=0.0), lrs(0.0), ['optimizer: lr']),
    'lr under steps': (
        {**sgd(), 'lr': STEP}, {**sgd(lr=0.02), 'lr': STEP}, lrs(0.002, 0.0002), ['optimizer: lr'],
    ),
    'lr under a cosine': (
        {**sgd(), 'lr': COSINE}, {**sgd(lr=0.2), 'lr': COSINE},
        lrs(round(0.1 * (1 + math.cos(math.pi * 3 / 8)), 9)), ['optimizer: lr'],
    ),
    'lr in a warm-up': (
        {**sgd(), 'lr': {**STEP, 'step': [99], 'warmup': 'linear', 'warmup_iters': 5}},
        {**sgd(lr=0.2), 'lr': {**STEP, 'step': [99], 'warmup': 'linear', 'warmup_iters': 5}},
        lrs(0.2 * (1 - 0.4 * 0.9)), ['optimizer: lr'],
    ),
    'lr of each group': (
        {'optimizer': {**SGD, **BIASES}}, {'optimizer': {**SGD, 'lr': 0.01, **BIASES}},
        lambda runner: [each['lr'] for each in runner.optimizer.param_groups][:2] == [0.01, 0.02],
        ['0.1, 0.2', '0.01, 0.02'],
    ),
    'lr of one kind of group': (
        {'optimizer': {**SGD, **BIASES}}, {'optimizer': {**SGD, 'paramwise_cfg': {'bias_lr_mult': 4.0}}},
        lambda runner: [each['lr'] for each in runner.optimizer.param_groups][:2] == [0.1, 0.4], ['optimizer: lr'],
    ),
    'lr after a plateau': (
        {**sgd(), 'lr': PLATEAU}, {**sgd(lr=0.2), 'lr': {**PLATEAU, 'patience': 99}}, lrs(0.002),
        ['optimizer: lr', 'schedule'],
    ),
    'lr under a schedule of torch': (
        {**sgd(), 'lr': {'policy': 'StepLR', 'step_size': 2, 'by_epoch': False}},
        {**sgd(lr=0.02), 'lr': {'policy': 'StepLR', 'step_size': 2, 'by_epoch': False}},
        lambda runner: lrs(0.002)(runner) and runner.current_lr()[0] == pytest.approx(2e-5), ['optimizer: lr'],
    ),
    'momentum': (sgd(), sgd(momentum=0.5), setting('momentum', 0.5), ['optimizer: momentum', '0.9', '0.5']),
    'momentum from none': (sgd(momentum=0), sgd(momentum=0.5), setting('momentum', 0.5), ['momentum']),
    'momentum under steps': (
        {**sgd(), 'momentum': MOMENTUM}, {**sgd(momentum=0.8), 'momentum': MOMENTUM}, setting('momentum', 0.2),
        ['optimizer: momentum'],
    ),
    'weight decay of a kind': (
        {'optimizer': {**SGD, 'weight_decay': 0.1, 'paramwise_cfg': {'bias_decay_mult': 0.5}}},
        {'optimizer': {**SGD, 'weight_decay': 0.1, 'paramwise_cfg': {'bias_decay_mult': 0.0}}},
        lambda runner: [each['weight_decay'] for each in runner.optimizer.param_groups][:2] == [0.1, 0.0],
        ['optimizer: weight_decay'],
    ),
    'nesterov': (sgd(), sgd(nesterov=True), setting('nesterov', True), ['optimizer: nesterov', 'False', 'True']),
    'fused': (adam(), adam(fused=True), setting('fused', True), ['optimizer: fused', 'Adam (fused)']),
    'fused no more': (adam(fused=True), adam(), setting('fused', None), ['Adam (fused)']),
    'fused by the hook, no more': (
        {**adam(), 'update': {'fused': 'auto'}}, adam(), setting('fused', None), ['OptimizerHook#0: fused'],
    ),
    'foreach': (sgd(), sgd(foreach=False), setting('foreach', False), ['optimizer: foreach']),
    'betas': (adam(), adam(betas=(0.8, 0.99)), setting('betas', (0.8, 0.99)), ['optimizer: betas', '[0.8, 0.99]']),
    'the second beta': (
        {**adam(), 'momentum': MOMENTUM}, {**adam(betas=(0.9, 0.99)), 'momentum': MOMENTUM},
        setting('betas', (0.225, 0.99)), ['optimizer: betas'],
    ),
    'amsgrad no more': (adam(amsgrad=True), adam(), setting('amsgrad', False), ['optimizer: amsgrad']),
    'a policy': (
        {**sgd(), 'lr': STEP}, {**sgd(), 'lr': {**COSINE}}, lrs(round(0.05 * (1 + math.cos(math.pi * 3 / 8)), 9)),
        ['StepLrUpdaterHook#0', 'schedule of lr', 'CosineAnnealingLrUpdaterHook'],
    ),
    'a policy after one with rates of its own': (
        {**sgd(), 'lr': CYCLE}, {**sgd(), 'lr': STEP}, lrs(0.01), ['schedule of lr'],
    ),
    'no policy any more': ({**sgd(), 'lr': STEP}, sgd(), lrs(0.1, 0.1), ['schedule of lr', 'none']),
    'no schedule of momenta': ({**sgd(), 'momentum': MOMENTUM}, sgd(), setting('momentum', 0.9), ['schedule of mom']),
    'no schedule of torch': (
        {**sgd(), 'lr': {'policy': 'OneCycleLR', 'max_lr': 1.0, 'by_epoch': False, 'total_steps': 9}}, sgd(),
        lambda runner: lrs(0.1)(runner) and group(runner)['momentum'] == 0.9,
        ['schedule of lr', 'schedule of momentum'],
    ),
    'a policy where there was none': (sgd(), {**sgd(), 'lr': STEP}, lrs(0.01), ['schedule of lr', 'none']),
    'steps': (
        {**sgd(), 'lr': STEP}, {**sgd(), 'lr': {**STEP, 'step': [4]}}, lrs(0.1, 0.01), ['step', '[2, 4]', '[4]'],
    ),
    'gamma': ({**sgd(), 'lr': STEP}, {**sgd(), 'lr': {**STEP, 'gamma': 0.5}}, lrs(0.05, 0.025), ['gamma']),
    'by_epoch': ({**sgd(), 'lr': STEP}, {**sgd(), 'lr': {**STEP, 'by_epoch': True}}, lrs(0.1), ['by_epoch']),
    'min_lr': (
        {**sgd(), 'lr': COSINE}, {**sgd(), 'lr': {**COSINE, 'min_lr': 0.1}}, lrs(0.1), ['min_lr', '0.0', '0.1'],
    ),
    'warmup': (
        {**sgd(), 'lr': STEP}, {**sgd(), 'lr': {**STEP, 'warmup': 'constant', 'warmup_iters': 9}}, lrs(0.001),
        ['warmup', 'warmup_iters'],
    ),
    'max_lr of a cycle': (
        {**sgd(), 'lr': CYCLE}, {**sgd(), 'lr': {**CYCLE, 'max_lr': 2.0}}, lambda runner: runner.current_lr()[0] > 0,
        ['max_lr', '1.0', '2.0'],
    ),
    'a schedule of torch': (
        {**sgd(), 'lr': {'policy': 'StepLR', 'step_size': 2, 'by_epoch': False}},
        {**sgd(), 'lr': {'policy': 'StepLR', 'step_size': 2, 'by_epoch': False, 'gamma': 0.5}}, lrs(0.05),
        ['schedule', 'gamma=0.5', 'continues at the position of the run'],
    ),
    'grad_clip': (
        {}, {'update': {'grad_clip': {'max_norm': 1.0}}},
        lambda runner: update_of(runner).grad_clip == {'max_norm': 1.0}, ['OptimizerHook#0: grad_clip', 'max_norm'],
    ),
    'cumulative_iters': (
        {'update': {'cumulative_iters': 4}}, {'update': {'cumulative_iters': 2}},
        lambda runner: update_of(runner).cumulative_iters == 2, ['accumulation', 'unfinished cycle are dropped'],
    ),
    'amp': ({}, {'update': {'amp': 'bf16'}}, lambda runner: update_of(runner).amp == 'bf16', ['precision', 'bf16']),
    'loss_scale': (
        {'update': None, 'fp16': {'loss_scale': 512.0}}, {'update': None, 'fp16': {'loss_scale': 64.0}},
        lambda runner: update_of(runner).scaler.get_scale() == 64.0, ['loss_scale', '512.0', '64.0', 'starts with'],
    ),
    'growth of the loss scale': (
        {'update': {'amp': 'fp16'}}, {'update': {'amp': 'fp16', 'loss_scale': {'growth_interval': 5}}},
        lambda runner: update_of(runner).scaler.get_growth_interval() == 5, ['loss_scale', 'growth_interval'],
    ),
    'momentum of averages': (
        {'ema': {}}, {'ema': {'momentum': 0.5, 'warm_up': 0}}, attribute('EMAHook', 'momentum', 0.5),
        ['EMAHook#0: momentum', '0.0002', '0.5', 'EMAHook#0: warm_up'],
    ),
    'patience': (
        {'stopping': {'monitor': 'error', 'patience': 50}}, {'stopping': {'monitor': 'error', 'patience': 60}},
        attribute('EarlyStoppingHook', 'patience', 60), ['EarlyStoppingHook#0: patience', '50', '60'],
    ),
    'monitor': (
        {'stopping': {'monitor': 'error', 'patience': 99}, 'evaluation': {'interval': 1}},
        {'stopping': {'monitor': 'loss', 'patience': 99}, 'evaluation': {'interval': 1}},
        lambda runner: found(runner, 'EarlyStoppingHook').best_iter > DONE, ['monitor', 'forgotten'],
    ),
    'a setting that the state holds': (
        {'keeps': {}}, {'keeps': {'threshold': 2.0}},
        lambda runner: vars(found(runner, 'Keeps'))['threshold'] == 2.0 and found(runner, 'Keeps').seen == 8,
        ['Keeps#0: threshold', '1.0', '2.0'],
    ),
    'interval of checkpoints': (
        {}, {'checkpoint': {'interval': 4}}, attribute('CheckpointHook', 'interval', 4), ['CheckpointHook#0: interval'],
    ),
    'rule': (
        {'evaluation': BEST}, {'evaluation': {**BEST, 'rule': 'greater'}},
        lambda runner: 'resumed' in runner.meta['hook_msgs']['best_ckpt'], ['EvalHook#0: rule', 'forgotten'],
    ),
    'max_iters': ({}, {'limits': {'max_iters': 5}}, lambda runner: runner.iter == 5, ['length', '8 it', '5 it']),
    'less than is done': (
        {}, {'limits': {'max_iters': 2}}, lambda runner: runner.iter == DONE, ['length', '2 iterations'],
    ),
    'epochs': (
        {}, {'limits': {'max_iters': None, 'max_epochs': 1}}, lambda runner: runner.iter == 5, ['length', '1 epochs'],
    ),
    'workflow': (
        {}, {'workflow': [('train', 2)]}, lambda runner: runner.iter == 8, ['workflow', 'starts over'],
    ),
    'batch size': ({}, {'data': loader(batch=5)}, lambda runner: runner.iter == 8, ['batch_size', '4', '5']),
    'length of the data': ({}, {'data': loader(24)}, lambda runner: runner.iter == 8, ['length', '20', '24']),
    'seed': ({}, {'data': build_dataloader(Noisy(20), 4, 0, seed=6)}, lambda runner: runner.iter == 8, ['seed', '6']),
}  # fmt: skip


class Wide(Measured):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 2)


GROUPS = {
    'a': {**SGD, 'params': ['body.0.*']},
    'b': {**SGD, 'params': ['body.1.*', 'head.*']},
}

#: Settings before, after; words of the error, which says what to do.
REFUSED = {
    'type': (sgd(), adam(), 'it was SGD and is Adam'),
    'type of a kind': (adam(), {'optimizer': {'type': 'AdamW', 'lr': 0.01}}, 'it was Adam and is AdamW'),
    'groups': (sgd(), {'optimizer': {**SGD, **BIASES}}, r'parameters are in 6 groups, but were in 1'),
    'no groups': ({'optimizer': {**SGD, **BIASES}}, sgd(), r'parameters are in 1 groups, but were in 6'),
    'one of several': (
        {'optimizer': GROUPS}, {'optimizer': {'a': GROUPS['a']}}, r"it was \{'a': 'SGD', 'b': 'SGD'\} and is \{'a'",
    ),
    'several': (sgd(), {'optimizer': GROUPS}, r"it was SGD and is \{'a': 'SGD'"),
    'names of several': (
        {'optimizer': GROUPS}, {'optimizer': {'a': GROUPS['b'], 'b': GROUPS['a']}}, 'in other groups, or in another',
    ),
    'amsgrad': (adam(), adam(amsgrad=True), 'amsgrad changed from False to True, which Adam cannot change'),
    'centered': (
        {'optimizer': {'type': 'RMSprop', 'lr': 0.01}},
        {'optimizer': {'type': 'RMSprop', 'lr': 0.01, 'centered': True}},
        'centered changed from False to True',
    ),
    'momentum of RMSprop': (
        {'optimizer': {'type': 'RMSprop', 'lr': 0.01}}, {'optimizer': {'type': 'RMSprop', 'lr': 0.01, 'momentum': 0.9}},
        'momentum changed from 0 to 0.9',
    ),
    'first sum of Adagrad': (
        {'optimizer': {'type': 'Adagrad', 'lr': 0.01}},
        {'optimizer': {'type': 'Adagrad', 'lr': 0.01, 'initial_accumulator_value': 1.0}},
        'initial_accumulator_value changed from 0',
    ),
    'lr of Rprop': (
        {'optimizer': {'type': 'Rprop', 'lr': 0.01}}, {'optimizer': {'type': 'Rprop', 'lr': 0.1}}, 'lr changed',
    ),
    'model': ({'model': Measured}, {'model': Wide}, 'another model'),
}  # fmt: skip


@pytest.mark.parametrize('name', EFFECTIVE)
def test_a_setting_that_has_changed_takes_effect_and_is_listed(name, tmp_path, caplog):
    before, after, holds, words = EFFECTIVE[name]
    start(tmp_path, before)
    caplog.clear()
    runner = start(tmp_path / 'resumed', after, str(tmp_path / f'iter_{DONE}.pth'))
    text = told(caplog)
    assert holds(runner), (vars(found(runner, 'Stops')), group(runner))
    assert 'Changed since' in text
    assert [word for word in words if word not in text] == [], text


@pytest.mark.parametrize('name', REFUSED)
def test_a_setting_that_cannot_change_is_refused_with_the_way(name, tmp_path):
    before, after, words = REFUSED[name]
    start(tmp_path, before)
    with pytest.raises(ValueError, match=words) as caught:
        start(tmp_path / 'resumed', after, str(tmp_path / f'iter_{DONE}.pth'))
    assert '--load-from' in str(caught.value)


#: Everything that has a state or a schedule; the checkpoint lies within a cycle of accumulation.
MUCH = [
    {'optimizer': {**SGD, **BIASES}, 'lr': COSINE, 'momentum': MOMENTUM, 'ema': {'momentum': 0.1},
     'update': {'cumulative_iters': 2, 'grad_clip': {'max_norm': 1.0}}, 'evaluation': BEST, 'keeps': {},
     'stopping': {'monitor': 'error', 'patience': 50}},
    {**adam(), 'lr': {'policy': 'OneCycleLR', 'max_lr': 0.1, 'by_epoch': False}, 'update': {'fused': 'auto'}},
    {**adam(amsgrad=True, foreach=True), 'lr': PLATEAU, 'update': None, 'fp16': {'loss_scale': 'dynamic'}},
    {'optimizer': GROUPS, 'lr': {**STEP, 'optimizer': 'a'}},
]  # fmt: skip


@pytest.mark.parametrize('wins', [True, False])
@pytest.mark.parametrize('settings', MUCH)
def test_a_resume_with_the_same_settings_is_silent_and_exact(settings, wins, tmp_path, caplog):
    start(tmp_path / 'first', settings)
    whole = start(tmp_path / 'whole', settings, str(tmp_path / 'first' / f'iter_{DONE}.pth'), wins)
    assert told(caplog) == ''
    straight = start(tmp_path / 'straight', settings, done=8)
    assert torch.equal(weights(whole.model), weights(straight.model))
    for one, other in zip(optimizers(whole), optimizers(straight), strict=True):
        assert [{**each, 'params': 0} for each in one.param_groups] == [
            {**each, 'params': 0} for each in other.param_groups
        ]


def optimizers(runner):
    return list(runner.optimizer.values()) if isinstance(runner.optimizer, dict) else [runner.optimizer]


# --- who decides -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('after, key, was', [(sgd(lr=0.001), 'lr', 0.1), (sgd(weight_decay=0.1), 'weight_decay', 0.0)])
def test_mmcvs_own_resume_keeps_the_settings_of_the_checkpoint_and_warns(after, key, was, tmp_path, caplog):
    start(tmp_path, sgd())
    caplog.clear()
    runner = start(tmp_path / 'second', after, str(tmp_path / 'iter_3.pth'), wins=False)
    assert setting(key, was)(runner)
    (line,) = [line for line in told(caplog).splitlines() if line.startswith(f'optimizer: {key}')]
    assert 'the value of the checkpoint stays, as in MMCV' in line
    assert 'runner.config_wins = True' in line
    # The checkpoint says what was in effect: a run by config takes its own setting.
    third = start(tmp_path / 'third', after, str(tmp_path / 'second' / 'iter_6.pth'))
    assert setting(key, after['optimizer'][key])(third)


def test_mmcvs_own_resume_takes_over_the_state_of_another_optimizer(tmp_path, caplog):
    start(tmp_path, adam())
    start(tmp_path / 'second', {'optimizer': {'type': 'AdamW', 'lr': 0.01}}, str(tmp_path / 'iter_3.pth'), wins=False)
    assert 'another formula uses it' in told(caplog)


@pytest.mark.parametrize('lost', ['settings', 'runnerkit'])
def test_a_checkpoint_that_does_not_know_its_settings_is_resumed_as_ever(lost, tmp_path, caplog):
    start(tmp_path, sgd())
    file = torch.load(tmp_path / 'iter_3.pth')
    del (file if lost == 'runnerkit' else file['runnerkit'])[lost]
    torch.save(file, tmp_path / 'old.pth')
    caplog.clear()
    runner = start(tmp_path / 'second', sgd(lr=0.001), str(tmp_path / 'old.pth'))
    assert group(runner)['lr'] == 0.1
    assert 'lr' not in told(caplog)


def test_settings_are_kept_from_resume_to_resume(tmp_path, caplog):
    """Each resume compares with the run before it, not with the first one."""
    settings = {**sgd(), 'lr': {**STEP, 'step': [99]}}
    start(tmp_path, settings)
    settings['optimizer'] = {**SGD, 'lr': 0.02}
    second = start(tmp_path / 'second', settings, str(tmp_path / 'iter_3.pth'))
    caplog.clear()
    third = start(tmp_path / 'third', settings, str(tmp_path / 'second' / 'iter_6.pth'))
    assert told(caplog) == ''
    assert torch.equal(weights(third.model), weights(second.model))
    settings['optimizer'] = {**SGD, 'lr': 0.1}
    assert lrs(0.1)(start(tmp_path / 'fourth', settings, str(tmp_path / 'second' / 'iter_6.pth')))


def test_going_back_to_a_checkpoint_of_before_the_change_keeps_the_change(tmp_path):
    class GoesBack(Hook):
        def __init__(self):
            self.done = False

        def after_train_iter(self, runner):
            if runner.iter == 5 and not self.done:
                self.done = True
                runner.roll_back(str(tmp_path / 'iter_3.pth'))

    start(tmp_path, sgd())
    runner = tiny_runner(
        work_dir=tmp_path / 'second', max_iters=8, optimizer=lambda m: build_optimizer(m, {**SGD, 'lr': 0.02})
    )
    for hook in (OptimizerHook(), GoesBack()):
        runner.register_hook(hook)
    runner.config_wins = True
    runner.resume(str(tmp_path / 'iter_3.pth'))
    runner.run([loader()], [('train', 1)])
    assert group(runner)['lr'] == 0.02


class Twice(Measured):
    """Its second loss is the first one and 100."""

    def val_step(self, data, optimizer=None, **kwargs):
        outputs = super().val_step(data)
        return {**outputs, 'log_vars': {**outputs['log_vars'], 'other_loss': 100 + outputs['log_vars']['loss']}}


@pytest.mark.parametrize('best', ['other_loss', 'loss', 'auto'])
def test_the_best_of_another_score_is_forgotten(best, tmp_path):
    settings = {'model': Twice, 'evaluation': {'interval': 1, 'save_best': 'loss'}}
    start(tmp_path, settings)
    was = torch.load(tmp_path / 'iter_3.pth')['meta']['hook_msgs']
    settings['evaluation'] = {'interval': 1, 'save_best': best}
    runner = start(tmp_path / 'second', settings, str(tmp_path / 'iter_3.pth'))
    messages = runner.meta['hook_msgs']
    if best == 'other_loss':  # none is better than the former best
        assert messages['best_score'] > 100
        assert 'best_other_loss' in messages['best_ckpt']
        assert len(list(tmp_path.glob('best_loss*'))) == 1  # the other's is left alone
    else:
        assert messages['best_score'] <= was['best_score']


# --- the pure parts --------------------------------------------------------------------------------------------------


def test_a_rate_that_is_a_tensor_stays_one():
    saved = {'lr': torch.tensor(0.05), 'initial_lr': torch.tensor(0.1), 'params': [0]}
    found = settled_group(saved, {'lr': 0.1}, {'lr': 0.2}, {'lr': torch.tensor(0.2), 'params': []})
    assert isinstance(found['lr'], torch.Tensor)
    assert (float(found['lr']), float(found['initial_lr'])) == pytest.approx((0.1, 0.2))
    assert float(saved['lr']) == pytest.approx(0.05)
    saved = {'lr': torch.tensor(0.0), 'params': [0]}
    found = settled_group(saved, {'lr': 0.0}, {'lr': 0.2}, {'lr': torch.tensor(0.2), 'params': []})
    assert isinstance(found['lr'], torch.Tensor)


def test_what_this_torch_knows_and_the_former_one_did_not_is_no_change():
    found = settled_group(
        {'lr': 0.1, 'params': [0]}, {'lr': 0.1}, {'lr': 0.1, 'new': 3}, {'lr': 0.1, 'new': 3, 'params': []}
    )
    assert found == {'lr': 0.1, 'params': [0], 'new': 3}
    assert changed({'lr': 0.1}, {'lr': 0.1, 'new': 3}) == []


@pytest.mark.parametrize('was, now, expected', [
    (0.1 * 3, 0.3, False), (math.nan, math.nan, False), (1, 1.0, False), ([1, 2], [1, 3], True), (None, 0.0, True),
    (0.1, 0.1 + 1e-9, True), (0.0, 1e-300, True),
])  # fmt: skip
def test_what_counts_as_another_value(was, now, expected):
    assert differs(was, now) == expected


def test_only_plain_values_are_settings():
    values = {'a': (1, [2.0]), 'b': math.sin, 'c': {'d': None, 'e': [math.sin]}, 'f': torch.tensor(2.0), 'g': 'x'}
    assert plain_settings(values.items()) == {'a': [1, [2.0]], 'f': 2.0, 'g': 'x'}


def test_settings_of_hooks_are_found_by_the_names_of_their_arguments():
    found = hook_settings(build_lr_hook({**COSINE, 'warmup': 'linear', 'warmup_iters': 3}))
    assert {
        'min_lr': 0.0,
        'min_lr_ratio': None,
        'warmup': 'linear',
        'warmup_iters': 3,
        'by_epoch': False,
    }.items() <= found.items()
    assert hook_settings(TextLoggerHook(interval=7))['interval'] == 7
    assert hook_settings(build_lr_hook({**CYCLE, 'max_lr': [1.0]}))['max_lr'] == [1.0]
    assert 'out_dir' not in hook_settings(CheckpointHook(out_dir='elsewhere'))


def test_what_an_optimizer_needs_from_its_start():
    optimizer, state = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1), {'state': {0: {'of_the_user': 1}}}
    off, on = {'centered': False}, {'centered': True}
    assert 'centered changed from False to True' in why_not_settled(optimizer, state, off, on)
    assert why_not_settled(optimizer, state, on, off) is None
    assert why_not_settled(optimizer, {'state': {}}, off, on) is None  # before the first step


def test_schedules_of_other_optimizers_do_not_count():
    cycle = {'lr': [['OneCycleLR', 'b']], 'momentum': []}
    assert [sets_own_rates(name, cycle) for name in ('a', 'b')] == [False, True]
    none = {'lr': [], 'momentum': []}
    assert rescheduled('a', none, cycle) == {}
    assert rescheduled('b', none, cycle) == {'lr': ('none', 'OneCycleLR')}


def test_the_same_parameters_in_other_groups():
    def groups(*names):
        return {'': [{'parameters': each.split()} for each in names]}

    assert why_other_parameters(groups('a', 'b'), groups('a', 'b')) is None
    assert why_other_parameters(groups('a', 'b'), groups('a', 'c')) is None  # another model: told elsewhere
    assert why_other_parameters(groups('a', 'b'), groups('a b')) == 'its parameters are in 1 groups, but were in 2'
    assert 'in another order' in why_other_parameters(groups('a', 'b'), groups('b', 'a'))
