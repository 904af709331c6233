"""The rate and the momentum that an iteration used are those that are logged, for every schedule."""

import json
from itertools import product
from pathlib import Path

import pytest
import torch
from support import Measured, loader, tiny_runner, weights

from runnerkit.hooks import HOOKS, CheckpointHook, EvalHook, Hook, TextLoggerHook
from runnerkit.hooks.logger import HistoryHook
from runnerkit.hooks.logger.trackers import TrackerHook
from runnerkit.hooks.torch_scheduler import TorchLrUpdaterHook, scheduler_names
from runnerkit.optim.named import named_optimizers

#: Epochs of 3 iterations.
ITERS = 9

LR = {
    'fixed': {},
    'step': {'step': [1, 2]},
    'exp': {'gamma': 0.5},
    'poly': {},
    'inv': {'gamma': 0.5},
    'CosineAnnealing': {'min_lr': 0.01},
    'FlatCosineAnnealing': {'min_lr': 0.01, 'start_percent': 0.3},
    'CosineRestart': {'min_lr': 0.01, 'periods': [2, 7], 'restart_weights': [1, 0.5]},
    'LinearAnnealing': {'min_lr': 0.01},
    'cyclic': {'by_epoch': False},
    'OneCycle': {'max_lr': 0.2, 'by_epoch': False},
}
WARM = {
    'constant': {'warmup': 'constant', 'warmup_iters': 2, 'warmup_ratio': 0.5},
    'linear': {'warmup': 'linear', 'warmup_iters': 4, 'warmup_ratio': 0.1},
    'exp': {'warmup': 'exp', 'warmup_iters': 1, 'warmup_by_epoch': True, 'warmup_ratio': 0.1},
}
MOMENTUM = {
    'step': {'step': [1, 2]},
    'CosineAnnealing': {'min_momentum': 0.5},
    'LinearAnnealing': {'min_momentum': 0.5},
    'cyclic': {'by_epoch': False},
    'OneCycle': {'by_epoch': False},
}
TORCH = {
    'LambdaLR': {'lr_lambda': lambda n: 1 / (n + 1)},
    'MultiplicativeLR': {'lr_lambda': lambda n: 0.8},
    'StepLR': {'step_size': 1, 'gamma': 0.5},
    'MultiStepLR': {'milestones': [1, 4]},
    'ConstantLR': {'total_iters': 2},
    'LinearLR': {'total_iters': 3},
    'ExponentialLR': {'gamma': 0.8},
    'PolynomialLR': {'total_iters': 8},
    'CosineAnnealingLR': {},
    'CosineAnnealingWarmRestarts': {'T_0': 2},
    'CyclicLR': {'base_lr': 0.01, 'max_lr': 0.1, 'step_size_up': 2},
    'OneCycleLR': {'max_lr': 0.2},
    'SequentialLR': {
        'schedulers': [{'policy': 'LinearLR', 'total_iters': 2}, {'policy': 'ExponentialLR', 'gamma': 0.5}],
        'milestones': [2],
    },
    'ChainedScheduler': {'schedulers': [{'policy': 'LinearLR'}, {'policy': 'ExponentialLR', 'gamma': 0.8}]},
    'ReduceLROnPlateau': {'monitor': 'train/loss', 'patience': 0, 'factor': 0.5, 'threshold': 10.0},
}
ON_VAL = {'ReduceLROnPlateau of val': {**TORCH['ReduceLROnPlateau'], 'monitor': 'val/error'}}

SCHEDULES = {
    **{f'lr {name}': {'lr': {'policy': name, **options}} for name, options in LR.items()},
    **{f'lr {name}': {'lr': {'policy': 'poly', **options}} for name, options in WARM.items()},
    **{f'momentum {name}': {'momentum': {'policy': name, **options}} for name, options in MOMENTUM.items()},
    'momentum warm': {'momentum': {'policy': 'step', 'step': [2], **WARM['linear']}},
    **{
        f'torch {name}': {'lr': {'policy': name.partition(' ')[0], **options}}
        for name, options in {**TORCH, **ON_VAL}.items()
    },
}


def test_the_table_has_every_schedule():
    def policies(suffix):
        names = {name.removesuffix(suffix) for name in HOOKS.names() if name.endswith(suffix)} - {'Torch', ''}
        return {name.lower() for name in names}

    assert {name.lower() for name in LR} == policies('LrUpdaterHook')
    assert {name.lower() for name in MOMENTUM} == policies('MomentumUpdaterHook')
    assert set(TORCH) == set(scheduler_names())


def values(optimizer):
    """Rate and momentum of each optimizer's first group."""
    groups = {name: one.param_groups[0] for name, one in named_optimizers(optimizer).items()}
    return {name: (group['lr'], group.get('momentum', group.get('betas', (0,))[0])) for name, group in groups.items()}


class Used(Hook):
    """Notes what each iteration uses, and compares it with what hooks read from then on."""

    def __init__(self):
        self.used, self.misread = {}, []

    def before_run(self, runner):
        for name, one in named_optimizers(runner.optimizer).items():
            one.register_step_pre_hook(lambda *_, name=name: self.compare(runner, 'step', name))

    def before_train_iter(self, runner):
        self.used[runner.iter + 1] = values(runner.optimizer)

    def compare(self, runner, point, name):
        read, used = values(runner.optimizer)[name], self.used[runner.iter + 1][name]
        if read != used:
            self.misread.append((point, runner.iter + 1, read, used))

    def look(self, runner, *scores):
        if runner.completed_iters in self.used:
            read = values(runner.optimizer)
            if read != self.used[runner.completed_iters]:
                self.misread.append((runner.completed_iters, read, self.used[runner.completed_iters]))

    after_train_iter = after_train_epoch = before_val_epoch = after_evaluate = look


class Diary(TrackerHook):
    """A tracker that keeps what it is sent."""

    def _open(self, runner):
        self.sent = []

    def _send(self, tags, runner):
        self.sent.append((self.get_iter(runner), tags))


def two(model):
    return {
        'body': torch.optim.SGD(model.body.parameters(), lr=0.1, momentum=0.9),
        'head': torch.optim.Adam(model.head.parameters(), lr=0.01),
    }


class TwoLosses(Measured):
    def train_step(self, data, optimizer=None, **kwargs):
        outputs = super().train_step(data, optimizer)
        return {**outputs, 'loss': {'body': outputs['loss'], 'head': outputs['loss'] * 2}}


class Steps(Measured):
    def train_step(self, data, optimizer=None, **kwargs):
        outputs = super().train_step(data, optimizer)
        optimizer.zero_grad()
        outputs['loss'].backward()
        optimizer.step()
        return outputs


def run(folder, kind, schedules, resume=None, optimizer=None, accumulate=1, saves=5, model=Measured):
    """Train, with each kind of evaluation and log; returns the runner and its `Used`, `HistoryHook` and `Diary`."""
    by_epoch = kind == 'epoch'
    torch.manual_seed(0)
    model = model if optimizer is None else TwoLosses
    runner = tiny_runner(kind, model(), folder, optimizer=optimizer, max_epochs=3)
    runner.keeps_random_states = True
    if optimizer is None:
        runner.register_optimizer_hook({'cumulative_iters': accumulate})
    else:
        runner.register_hook(Losses(), 'ABOVE_NORMAL')
    runner.register_lr_hook(schedules.get('lr'))
    runner.register_momentum_hook(schedules.get('momentum'))
    runner.register_hook(EvalHook(loader(4), interval=2, by_epoch=False, save_best='error'), 'LOW')
    if by_epoch:
        runner.register_hook(EvalHook(loader(4)), 'LOW')
    runner.register_hook(CheckpointHook(interval=saves, by_epoch=False))
    hooks = [Used(), TextLoggerHook(interval=1, by_epoch=by_epoch), HistoryHook(), Diary(interval=1, by_epoch=by_epoch)]
    for hook in hooks:
        runner.register_hook(hook, 'VERY_LOW')
    if resume is not None:
        runner.resume(str(resume))
    workflow = [('train', 1), ('val', 1)] if by_epoch else [('train', 3), ('val', 1)]
    runner.run([loader(12), loader(4)], workflow)
    return runner, hooks[0], hooks[2], hooks[3]


class Losses(Hook):
    """The update of several optimizers."""

    def after_train_iter(self, runner):
        runner.update(runner.outputs['loss'])


def check(folder, used, history, diary, begin=0):
    """What was logged is what was used; every iteration has one line of training in each log."""
    assert used.misread == []
    first = {step: {name: rate for name, (rate, _) in each.items()} for step, each in used.used.items()}
    momentum = {step: {name: each[1] for name, each in found.items()} for step, found in used.used.items()}
    (file,) = Path(folder).glob('*.log.json')
    lines = [line for line in map(json.loads, file.read_text().splitlines()) if 'mode' in line and line['step']]
    own = [line for line in lines if line['step'] > begin]
    assert {line['mode'] for line in lines} == {'train', 'val'}
    assert [line['step'] for line in own if line['mode'] == 'train'] == [*range(begin + 1, ITERS + 1)]
    for line in own:
        assert (line['lr'] if isinstance(line['lr'], dict) else {'': line['lr']}) == first[line['step']], line
    records = [record for record in history.records if record['mode'] == 'train' and record['step'] > begin]
    assert [record['step'] for record in records] == [*range(begin + 1, ITERS + 1)]
    for record in records:
        rates = {name.removeprefix('lr').removeprefix('/'): rate for name, rate in record.items() if name[:2] == 'lr'}
        assert rates == first[record['step']]
    for tag, expected in (('learning_rate', first), ('momentum', momentum)):
        sent = [
            (step, name.removeprefix(tag).removeprefix('/'), value)
            for step, tags in diary.sent
            for name, value in tags.items()
            if name.startswith(tag) and begin < step <= ITERS
        ]
        wanted = [(step, name, value) for step, each in expected.items() for name, value in each.items()]
        assert sorted(sent) == sorted(wanted)
    return own


def check_resumed(folder, kind, schedules, whole, file, lines, **options):
    """A run that is resumed from ``file`` uses and logs what the whole one did, and ends with its weights."""
    begin = torch.load(file, weights_only=True)['meta']['iter']
    if begin == ITERS:
        return
    work_dir = folder / f'from {file.name}'
    runner, *hooks = run(work_dir, kind, schedules, file, **options)
    ours = check(work_dir, *hooks, begin)
    assert hooks[0].used == {step: each for step, each in whole[1].used.items() if step > begin}
    assert [line['lr'] for line in ours] == [line['lr'] for line in lines if line['step'] > begin]
    assert all(
        torch.equal(one, other) for one, other in zip(weights(runner.model), weights(whole[0].model), strict=True)
    )


CELLS = [*product(SCHEDULES, ['epoch', 'iter'], [True, False])]

#: All of torch's, and some of MMCV's, which set what they need before an iteration.
QUICK = {name for name in SCHEDULES if name.startswith('torch')} | {'lr poly', 'lr linear', 'momentum OneCycle'}


@pytest.mark.parametrize('i, name, kind, by_epoch', [
    pytest.param(i, *cell, marks=[] if cell[0] in QUICK and i % 4 == i // 4 % 4 else pytest.mark.thorough)
    for i, cell in enumerate(CELLS)
])  # fmt: skip
def test_used_is_logged(i, name, kind, by_epoch, tmp_path):
    """Of each schedule of `QUICK`, one of the four cells is not thorough. The run that is resumed was saved inside an
    epoch or at its end."""
    schedules = {key: {'by_epoch': by_epoch, **options} for key, options in SCHEDULES[name].items()}
    saves = 5 + i // 2 % 2
    whole = run(tmp_path / 'whole', kind, schedules, saves=saves)
    lines = check(tmp_path / 'whole', *whole[1:])
    if name != 'lr fixed':
        assert len({each[''] for each in whole[1].used.values()}) > 1  # the schedule did something
    check_resumed(tmp_path, kind, schedules, whole, tmp_path / 'whole' / f'iter_{saves}.pth', lines)


SEVERAL = {
    'by iteration': {'policy': 'ExponentialLR', 'gamma': 0.8, 'by_epoch': False},
    'by epoch': {'policy': 'StepLR', 'step_size': 1},
    'on training': {'policy': 'ReduceLROnPlateau', **TORCH['ReduceLROnPlateau'], 'by_epoch': False},
    'on validation': {'policy': 'ReduceLROnPlateau', **ON_VAL['ReduceLROnPlateau of val']},
}


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
@pytest.mark.parametrize('name', SEVERAL)
def test_a_file_that_was_saved_before_the_other_hooks_were_called(name, kind, tmp_path):
    """The best one is saved inside ``after_train_iter``, before the loggers write the line."""
    schedules = {'lr': SEVERAL[name]}
    whole = run(tmp_path / 'whole', kind, schedules)
    lines = check(tmp_path / 'whole', *whole[1:])
    (best,) = (tmp_path / 'whole').glob('best_*.pth')
    check_resumed(tmp_path, kind, schedules, whole, best, lines)


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
@pytest.mark.parametrize('options', [{'accumulate': 2}, {'optimizer': two}], ids=['accumulated', 'several optimizers'])
@pytest.mark.parametrize(
    'schedule', [SEVERAL['by iteration'], {'policy': 'poly', 'by_epoch': False}], ids=['torch', 'mmcv']
)
def test_accumulation_and_several_optimizers(schedule, options, kind, tmp_path):
    schedules = {'lr': schedule}
    whole = run(tmp_path / 'whole', kind, schedules, **options)
    lines = check(tmp_path / 'whole', *whole[1:])
    check_resumed(tmp_path, kind, schedules, whole, tmp_path / 'whole' / 'iter_5.pth', lines, **options)


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
@pytest.mark.parametrize('name', SEVERAL)
def test_files_of_earlier_versions(name, kind, tmp_path, monkeypatch):
    """Their schedulers had stepped for what was done: with an OptimizerHook before its update, which is one step too
    early, so that here the model updates itself. `test_used_is_logged` is the same for today's files."""
    schedules = {'lr': SEVERAL[name]}
    whole = run(tmp_path / 'whole', kind, schedules, model=Steps)
    lines = check(tmp_path / 'whole', *whole[1:])
    with monkeypatch.context() as patch:
        for point in ('after_train_iter', 'after_train_epoch', 'after_evaluate'):
            patch.setattr(TorchLrUpdaterHook, point, at_once(getattr(TorchLrUpdaterHook, point), point))
        state_dict = TorchLrUpdaterHook.state_dict
        patch.setattr(TorchLrUpdaterHook, 'state_dict', lambda self: without(state_dict(self), 'done', 'due'))
        old = run(tmp_path / 'old', kind, schedules, model=Steps)
        assert old[1].used == whole[1].used
        assert old[1].misread
    check_resumed(tmp_path, kind, schedules, whole, tmp_path / 'old' / 'iter_5.pth', lines, model=Steps)


def at_once(method, point):
    """What the hook did at ``point`` before, when it stepped there."""

    def called(self, runner, *scores):
        method(self, runner, *scores)
        done = runner.completed_epochs if self.by_epoch else runner.completed_iters
        if not self._key:
            self._step_to(done)
        for value in self._due:
            self._step(value)
        self._due.clear()

    return called


def without(state, *names):
    return {name: value for name, value in state.items() if name not in names}
