import copy
import json
import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support import ROOT, benchmark, loader, tiny_runner

from runnerkit.hooks import CheckpointHook, Hook, OptimizerHook, build_lr_hook, build_momentum_hook
from runnerkit.hooks.hook import HOOKS
from runnerkit.hooks.lr_updater import LrUpdaterHook
from runnerkit.hooks.param_schedule import format_param, read, write

# Its optimizers are the ones that the tables were recorded with.
golden = benchmark('golden_curves')


def read_cases(quantity):
    table = np.load(ROOT / f'tests/data/{quantity}_curves.npz')
    values, start = table['values'], 0
    for case in json.loads(str(table['cases'])):
        optimizer = golden.build_optimizer(case['optimizer'], golden.Model())
        count = case['iters'] * len(golden.groups_of(optimizer))
        yield quantity, case, values[start : start + count]
        start += count


CASES = [*read_cases('lr'), *read_cases('momentum')]


def make_view(optimizer, by_epoch=True, iters_per_epoch=7, max_epochs=143, max_iters=1001):
    return SimpleNamespace(
        optimizer=optimizer,
        epoch=0,
        iter=0,
        inner_iter=0,
        by_epoch=by_epoch,
        max_epochs=max_epochs,
        max_iters=max_iters,
        data_loader=range(iters_per_epoch),
        logger=logging.getLogger('test'),
        outputs={},
        log_buffer=SimpleNamespace(output={}),
    )


def drive(hook, view, start=0, stop=None, read=None):
    """Call a hook as a runner would; return what ``read`` finds in every iteration."""
    found = []
    length = len(view.data_loader)
    view.epoch, view.iter = start // length, start
    hook.before_run(view)
    for view.iter in range(start, view.max_iters if stop is None else stop):
        view.epoch, view.inner_iter = divmod(view.iter, length)
        if view.by_epoch and (view.inner_iter == 0 or view.iter == start):
            hook.before_train_epoch(view)
        hook.before_train_iter(view)
        found.extend(golden.read(group, read or 'lr') for group in golden.groups_of(view.optimizer))
        hook.after_train_iter(view)
        if view.by_epoch and view.inner_iter == length - 1:
            hook.after_train_epoch(view)
    return found


def sgd(**kwargs):
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], **dict(dict(lr=0.1, momentum=0.9), **kwargs))


def replay(quantity, case, start=0):
    build = build_lr_hook if quantity == 'lr' else build_momentum_hook
    by_epoch = case['runner'] == 'epoch'
    optimizer = golden.build_optimizer(case['optimizer'], golden.Model())
    view = make_view(optimizer, by_epoch, case['iters_per_epoch'], 143 if by_epoch else None, case['iters'])
    return drive(build(case['config']), view, start, read=quantity)


#: A quarter that has every policy, warm-up and kind of optimizer.
QUICK = CASES[2::4]


@pytest.mark.parametrize('cases', [QUICK, pytest.param(CASES, marks=pytest.mark.thorough)], ids=['quick', 'all'])
def test_curves_equal_those_of_mmcv(cases):
    """To the last bit: the order of the operations is the same too."""
    for quantity, case, expected in cases:
        before = copy.deepcopy(case)
        found = replay(quantity, case)
        assert len(found) == len(expected) >= 1000
        assert found == expected.tolist(), case
        assert case == before


@pytest.mark.parametrize('start', [1, 7, 24, 349, 350, 705])
def test_resumed_runs_follow_the_same_curves(start):
    for quantity, case, expected in CASES[::9]:
        found, groups = resumed(quantity, case, start)
        assert found == expected[start * groups : (start + 200) * groups].tolist(), case


def resumed(quantity, case, start):
    """The position and the groups, which come from the optimizer's state, say everything: a curve from ``start`` on,
    and how many groups it is of."""
    build = build_lr_hook if quantity == 'lr' else build_momentum_hook
    by_epoch = case['runner'] == 'epoch'
    limits = (by_epoch, case['iters_per_epoch'], 143 if by_epoch else None, case['iters'])
    first = golden.build_optimizer(case['optimizer'], golden.Model())
    drive(build(case['config']), make_view(first, *limits), 0, start, read=quantity)
    second = golden.build_optimizer(case['optimizer'], golden.Model())
    for old, new in zip(golden.groups_of(first), golden.groups_of(second), strict=True):
        new.update({key: value for key, value in old.items() if key != 'params'})
    found = drive(build(case['config']), make_view(second, *limits), start, start + 200, read=quantity)
    return found, len(golden.groups_of(second))


class Recorded(dict):
    """A parameter group that counts how often it is written to."""

    writes = 0

    def __setitem__(self, key, value):
        self.writes += 1
        super().__setitem__(key, value)


def count_writes(config, iters):
    view = make_view(sgd())
    group = view.optimizer.param_groups[0] = Recorded(view.optimizer.param_groups[0])
    drive(build_lr_hook(config), view, stop=iters)
    return group.writes


def test_nothing_is_written_while_nothing_changes():
    assert count_writes(dict(policy='step', step=[8]), 70) == 10
    assert count_writes(dict(policy='step', step=[8], warmup='linear', warmup_iters=20), 70) == 10 + 20 + 1
    assert count_writes(dict(policy='fixed', by_epoch=False), 70) == 70


def test_by_epoch_the_regular_values_are_computed_once_an_epoch():
    class Counted(LrUpdaterHook):
        computed = 0

        def get_lr(self, runner, base_lr):
            self.computed += 1
            return base_lr

    hook = Counted(warmup='linear', warmup_iters=10)
    drive(hook, make_view(sgd()), stop=21)
    assert hook.computed == 3


class ByEpoch(LrUpdaterHook):
    def get_lr(self, runner, base_lr):
        return base_lr * (1 + runner.epoch)


def test_schedule_by_epoch_follows_the_epochs_of_an_iteration_runner():
    """MMCV leaves the learning rate as it is there: its iteration runner announces no epochs."""
    view = make_view(sgd(lr=1.0), by_epoch=False, max_epochs=None)
    found = drive(ByEpoch(), view, stop=21)
    assert found == [1.0] * 7 + [2.0] * 7 + [3.0] * 7
    found = drive(ByEpoch(), make_view(view.optimizer, by_epoch=False), start=17, stop=22)
    assert found == [3.0] * 4 + [4.0]


def test_warmup_by_epoch_in_an_iteration_runner():
    hook = build_lr_hook(dict(policy='fixed', by_epoch=False, warmup='linear', warmup_iters=2, warmup_by_epoch=True))
    assert hook.warmup_iters is None
    found = drive(hook, make_view(sgd(lr=1.0), by_epoch=False), stop=16)
    assert hook.warmup_iters == 14
    assert found[:14] == [1 - (1 - i / 14) * 0.9 for i in range(14)]
    assert found[14:] == [1.0, 1.0]


def test_initial_value_of_the_group_wins():
    optimizer = sgd(lr=0.001)
    optimizer.param_groups[0].update(initial_lr=0.5, initial_momentum=0.25)
    view = make_view(optimizer)
    drive(build_lr_hook(dict(policy='fixed')), view, stop=1)
    drive(build_momentum_hook(dict(policy='step', step=2)), view, stop=1)
    assert optimizer.param_groups[0]['lr'] == 0.5
    assert optimizer.param_groups[0]['momentum'] == 0.25


def test_tensors_keep_their_identity():
    """Compiled optimizers hold on to them."""
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=torch.tensor(0.5))
    tensor = optimizer.param_groups[0]['lr']
    drive(build_lr_hook(dict(policy='exp', gamma=0.5)), make_view(optimizer), stop=8)
    assert optimizer.param_groups[0]['lr'] is tensor
    assert tensor == 0.25
    assert optimizer.param_groups[0]['initial_lr'] == 0.5


@pytest.mark.parametrize(
    ('by_epoch', 'message'),
    [(True, 'max_epochs is None; set max_epochs.*or by_epoch=False'), (False, 'max_iters is None.*by_epoch=True')],
)
def test_unknown_length_of_the_run(by_epoch, message):
    hook = build_lr_hook(dict(policy='poly', by_epoch=by_epoch))
    view = make_view(sgd(), max_epochs=None, max_iters=None)
    hook.before_run(view)
    with pytest.raises(ValueError, match=message):
        hook.get_regular_lr(view)


def test_reading_and_writing_a_group():
    group = dict(betas=(0.9, 0.99), lr=1, weight_decay=torch.tensor(0.5))
    assert [read(group, key) for key in ('momentum', 'lr', 'weight_decay', 'rho')] == [0.9, 1.0, 0.5, None]
    decay = group['weight_decay']
    for key in ('momentum', 'lr', 'weight_decay'):
        write(group, key, 0.25)
    assert group == dict(betas=(0.25, 0.99), lr=0.25, weight_decay=torch.tensor(0.25))
    assert group['weight_decay'] is decay


BUILDERS = [(build_lr_hook, 'LrUpdaterHook'), (build_momentum_hook, 'MomentumUpdaterHook')]


@pytest.mark.parametrize(('build', 'suffix'), BUILDERS)
def test_policy_names(build, suffix):
    for policy in ('step', 'Step'):
        config = dict(policy=policy, step=[3])
        hook = build(config)
        assert type(hook).__name__ == f'Step{suffix}'
        assert config == dict(policy=policy, step=[3])
    assert build(dict(type=f'Step{suffix}', step=3)).step == 3
    assert build(hook) is hook


@pytest.mark.parametrize(('build', 'suffix'), BUILDERS)
@pytest.mark.parametrize(
    ('config', 'error', 'message'),
    [
        ('step', AssertionError, "got 'step'"),
        (None, TypeError, 'got None'),
        (dict(step=3), AssertionError, 'names its policy'),
        (dict(policy=3), TypeError, 'policy must be a name such as "step", got 3'),
        (dict(policy='cosinannealing'), KeyError, "no policy 'cosinannealing'; did you mean 'CosineAnnealing'"),
        (dict(policy='qqq'), KeyError, r"no policy 'qqq'\. Policies: "),
        (dict(policy='step', step=3, gama=0.1), TypeError, "'gama'.*did you mean 'gamma'"),
    ],
)
def test_wrong_configs(build, suffix, config, error, message):
    with pytest.raises(error, match=message):
        build(config)


def test_own_policy_by_name():
    try:

        @HOOKS.register_module()
        class YOLOXLrUpdaterHook(LrUpdaterHook):
            pass

        assert type(build_lr_hook(dict(policy='YOLOX'))) is YOLOXLrUpdaterHook
    finally:
        HOOKS.module_dict.pop('YOLOXLrUpdaterHook')


def test_a_runner_of_other_peoples_need_not_say_what_its_unit_is():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    hook = build_lr_hook({'policy': 'step', 'step': [1]})
    hook.before_run(SimpleNamespace(optimizer=optimizer))
    hook.before_train_epoch(SimpleNamespace(optimizer=optimizer, epoch=1))
    assert optimizer.param_groups[0]['lr'] == pytest.approx(0.01)


def test_format_param():
    optimizer = torch.optim.SGD([{'params': torch.zeros(1)}, {'params': torch.zeros(1)}], lr=0.1)
    assert format_param('a', optimizer, 3) == [3, 3]
    assert format_param('a', optimizer, [1, 2]) == [1, 2]
    assert format_param('a', optimizer, dict(a=3, b=4)) == [3, 3]
    assert format_param('a', optimizer, dict(a=(1, 2))) == (1, 2)
    with pytest.raises(ValueError, match='a has 2 parameter groups, but 1 values are given'):
        format_param('a', optimizer, [1])
    with pytest.raises(KeyError, match='c has no value among those for a, b'):
        format_param('c', optimizer, dict(a=3, b=4))


# --- one of several optimizers ---------------------------------------------------------------------------------------


def two_optimizers(model):
    parts = {'a': model.body, 'b': model.head}
    return {name: torch.optim.SGD(part.parameters(), lr=0.1, momentum=0.9) for name, part in parts.items()}


class Values(Hook):
    """Writes down a quantity of both optimizers in each iteration."""

    def __init__(self, key):
        self.key, self.seen = key, []

    def after_train_iter(self, runner):
        groups = {name: one.param_groups[0] for name, one in runner.optimizer.items()}
        self.seen.append(tuple(round(float(group[self.key]), 6) for group in groups.values()))


@pytest.mark.parametrize(
    'build, config, key, expected',
    [
        (build_lr_hook, dict(policy='step', step=[2], by_epoch=False), 'lr', [0.1, 0.1, 0.01, 0.01]),
        (build_lr_hook, dict(policy='fixed', warmup='constant', warmup_iters=2), 'lr', [0.01, 0.01, 0.1, 0.1]),
        (build_lr_hook, dict(policy='OneCycle', max_lr=0.5, pct_start=0.5), 'lr', None),
        (build_lr_hook, dict(policy='StepLR', step_size=2, by_epoch=False), 'lr', [0.1, 0.1, 0.01, 0.01]),
        (build_momentum_hook, dict(policy='step', step=[2], by_epoch=False), 'momentum', [0.9, 0.9, 0.45, 0.45]),
        (build_momentum_hook, dict(policy='cyclic', target_ratio=(0.5, 1)), 'momentum', None),
    ],
)
def test_a_schedule_for_one_of_several_optimizers(build, config, key, expected, tmp_path):
    def run(resume_at=None):
        runner = tiny_runner('iter', optimizer=two_optimizers, max_iters=4, work_dir=tmp_path)
        values = Values(key)
        runner.register_hook(build(dict(config, optimizer='b')), 'VERY_HIGH')
        runner.register_hook(OptimizerHook())
        runner.register_hook(values, 'HIGHEST')
        runner.register_hook(CheckpointHook(interval=1, by_epoch=False))
        if resume_at is not None:
            runner.resume(str(tmp_path / f'iter_{resume_at}.pth'))
        runner.run([loader()], [('train', 1)])
        return values.seen

    seen = run()
    assert {a for a, _ in seen} == {0.1 if key == 'lr' else 0.9}
    curve = [b for _, b in seen]
    assert curve == expected if expected else len(set(curve)) > 1
    assert run(resume_at=2) == seen[2:]


def test_a_schedule_for_an_optimizer_that_is_not_there():
    for config in (dict(policy='fixed', optimizer='c'), dict(policy='StepLR', step_size=2, optimizer='c')):
        runner = tiny_runner('iter', optimizer=two_optimizers, max_iters=4)
        runner.register_hook(build_lr_hook(config))
        runner.register_hook(OptimizerHook())
        with pytest.raises(KeyError, match="for the optimizer 'c', and there is none of that name"):
            runner.run([loader()], [('train', 1)])
