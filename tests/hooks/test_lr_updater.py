import inspect
from types import SimpleNamespace

import pytest
import torch

from runnerkit.hooks import build_lr_hook, lr_updater
from runnerkit.hooks.hook import HOOKS
from runnerkit.hooks.lr_updater import LrUpdaterHook
from runnerkit.optim import schedules

#: As the real mmcv 1.7.2 prints them, without annotations; ``optimizer`` is ours.
SIGNATURES = {
    'LrUpdaterHook': (
        '(by_epoch=True, warmup=None, warmup_iters=0, warmup_ratio=0.1, warmup_by_epoch=False, optimizer=None)'
    ),
    'FixedLrUpdaterHook': '(**kwargs)',
    'StepLrUpdaterHook': '(step, gamma=0.1, min_lr=None, **kwargs)',
    'ExpLrUpdaterHook': '(gamma, **kwargs)',
    'PolyLrUpdaterHook': '(power=1.0, min_lr=0.0, **kwargs)',
    'InvLrUpdaterHook': '(gamma, power=1.0, **kwargs)',
    'CosineAnnealingLrUpdaterHook': '(min_lr=None, min_lr_ratio=None, **kwargs)',
    'FlatCosineAnnealingLrUpdaterHook': '(start_percent=0.75, min_lr=None, min_lr_ratio=None, **kwargs)',
    'CosineRestartLrUpdaterHook': '(periods, restart_weights=[1], min_lr=None, min_lr_ratio=None, **kwargs)',
    'CyclicLrUpdaterHook': (
        "(by_epoch=False, target_ratio=(10, 0.0001), cyclic_times=1, step_ratio_up=0.4, anneal_strategy='cos', "
        'gamma=1, **kwargs)'
    ),
    'OneCycleLrUpdaterHook': (
        "(max_lr, total_steps=None, pct_start=0.3, anneal_strategy='cos', div_factor=25, final_div_factor=10000.0, "
        'three_phase=False, **kwargs)'
    ),
    'LinearAnnealingLrUpdaterHook': '(min_lr=None, min_lr_ratio=None, **kwargs)',
}


def bare(signature):
    """A signature without its annotations."""
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))


@pytest.mark.parametrize('name', SIGNATURES)
def test_signatures_are_those_of_mmcv(name):
    cls = getattr(lr_updater, name)
    assert bare(inspect.signature(cls)) == SIGNATURES[name]
    assert issubclass(cls, LrUpdaterHook)
    assert (HOOKS.get(name) is cls) == (name != 'LrUpdaterHook')


def test_functions_of_mmcv_are_here_too():
    assert lr_updater.annealing_cos is schedules.annealing_cos
    assert lr_updater.annealing_linear is schedules.annealing_linear
    assert bare(inspect.signature(lr_updater.annealing_cos)) == '(start, end, factor, weight=1.0)'
    assert bare(inspect.signature(lr_updater.annealing_linear)) == '(start, end, factor)'
    assert bare(inspect.signature(lr_updater.format_param)) == '(name, optim, param)'
    assert bare(inspect.signature(lr_updater.get_position_from_periods)) == '(iteration, cumulative_periods)'
    assert set(SIGNATURES) < set(lr_updater.__all__)


def make_view(optimizer=None, **kwargs):
    optimizer = optimizer or torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    return SimpleNamespace(
        **dict(
            dict(
                optimizer=optimizer, epoch=0, iter=0, by_epoch=True, max_epochs=10, max_iters=50, data_loader=range(5)
            ),
            **kwargs,
        )
    )


def test_the_base_class_has_no_policy():
    hook = LrUpdaterHook()
    hook.before_run(make_view())
    with pytest.raises(NotImplementedError, match='LrUpdaterHook has no formula: .*override get_lr'):
        hook.before_train_epoch(make_view())


def test_a_policy_of_downstream():
    """What mmdet's YOLOX policy and others override and read."""

    class Quadratic(LrUpdaterHook):
        def get_lr(self, runner, base_lr):
            return base_lr * (1 - runner.iter / runner.max_iters)

        def get_warmup_lr(self, cur_iters):
            def quadratic(values):
                return [lr * (cur_iters / self.warmup_iters) ** 2 for lr in values]

            return quadratic(self.regular_lr)

    hook = Quadratic(by_epoch=False, warmup='exp', warmup_iters=4)
    view = make_view()
    hook.before_run(view)
    assert hook.base_lr == [1.0]
    assert (hook.by_epoch, hook.warmup, hook.warmup_ratio, hook.warmup_epochs) == (False, 'exp', 0.1, None)
    found = []
    for view.iter in range(6):
        hook.before_train_iter(view)
        found.append(view.optimizer.param_groups[0]['lr'])
    assert hook.regular_lr == [0.9]
    assert found == pytest.approx([0, 0.98 / 16, 0.96 / 4, 0.94 * 9 / 16, 0.92, 0.9])


def test_a_subclass_may_set_its_own_initial_values_and_the_regular_ones():
    class Own(lr_updater.FixedLrUpdaterHook):
        def before_run(self, runner):
            self.base_lr = [0.25]

        def get_regular_lr(self, runner):
            return [2 * lr for lr in self.base_lr]

    hook, view = Own(), make_view()
    hook.before_run(view)
    hook.before_train_epoch(view)
    assert view.optimizer.param_groups[0]['lr'] == 0.5


def test_settings_have_the_names_of_mmcv_and_may_be_changed():
    hook, view = build_lr_hook(dict(policy='step', step=[1], min_lr=0.5)), make_view(epoch=1)
    hook.before_run(view)
    assert (hook.step, hook.gamma, hook.min_lr) == ([1], 0.1, 0.5)
    hook.min_lr = 0.25
    assert hook.get_regular_lr(view) == [0.25]
    hook.gamma = 0.75
    assert hook.get_regular_lr(view) == [0.75]


def test_a_subclass_may_leave_out_the_constructor_of_its_policy():
    class Own(lr_updater.StepLrUpdaterHook):
        def __init__(self, **kwargs):
            self.step, self.gamma, self.min_lr = 1, 0.5, None
            super(lr_updater.StepLrUpdaterHook, self).__init__(**kwargs)

    hook, view = Own(by_epoch=False), make_view(iter=2)
    hook.before_run(view)
    hook.before_train_iter(view)
    assert view.optimizer.param_groups[0]['lr'] == 0.25


@pytest.mark.parametrize(
    ('config', 'error', 'message'),
    [
        (
            dict(policy='fixed', warmup='foo'),
            ValueError,
            '"foo" is not a supported type of warm-up; choose one of constant, linear, exp',
        ),
        (dict(policy='fixed', warmup='linear'), ValueError, '"warmup_iters" must be at least 1, got 0'),
        (
            dict(policy='fixed', warmup='linear', warmup_iters=1, warmup_ratio=0),
            ValueError,
            'above 0 and at most 1, got 0',
        ),
        (
            dict(policy='fixed', warmup='linear', warmup_iters=1, warmup_ratio=2),
            ValueError,
            'above 0 and at most 1, got 2',
        ),
        (dict(policy='step', step=0), ValueError, '"step"'),
        (dict(policy='CosineAnnealing'), ValueError, 'exactly one of min_lr and min_lr_ratio'),
        (dict(policy='FlatCosineAnnealing', min_lr=0, start_percent=2), ValueError, '"start_percent"'),
        (
            dict(policy='CosineRestart', periods=[1, 2], min_lr=0),
            ValueError,
            r'2 periods, \[1, 2\], and 1 restart_weights',
        ),
        (dict(policy='CosineRestart', periods=[0], min_lr=0), ValueError, 'periods must be a positive integer'),
        (dict(policy='cyclic', by_epoch=True), ValueError, 'CyclicLrUpdaterHook counts iterations'),
        (dict(policy='cyclic', gamma=2), ValueError, '"gamma"'),
        (dict(policy='cyclic', gamma=0), ValueError, '"gamma"'),
        (dict(policy='cyclic', cyclic_times=0), ValueError, 'cyclic_times'),
        (dict(policy='cyclic', step_ratio_up=1.0), ValueError, 'step_ratio_up'),
        (dict(policy='OneCycle', max_lr=1, by_epoch=True), ValueError, 'OneCycleLrUpdaterHook counts iterations'),
        (dict(policy='OneCycle', max_lr='1'), ValueError, "max_lr is a number, .* got '1'"),
        (dict(policy='OneCycle', max_lr=1, pct_start=2), ValueError, '"pct_start"'),
        (
            dict(policy='OneCycle', max_lr=1, total_steps='a'),
            ValueError,
            "total_steps must be a positive integer, but got 'a'",
        ),
        (
            dict(policy='OneCycle', max_lr=1, div_factor=0),
            ValueError,
            'div_factor and final_div_factor must be',
        ),
        (dict(policy='OneCycle', max_lr=1, final_div_factor=0), ValueError, 'must be above 0: 25, 0'),
        (
            dict(policy='OneCycle', max_lr=1, anneal_strategy='x'),
            ValueError,
            "no anneal_strategy 'x'; choose one of cos, linear",
        ),
        (dict(policy='OneCycle'), TypeError, 'max_lr'),
    ],
)
def test_wrong_settings(config, error, message):
    with pytest.raises(error, match=message):
        build_lr_hook(config)


def test_one_cycle_shorter_than_the_run():
    hook = build_lr_hook(dict(policy='OneCycle', max_lr=1.0, total_steps=49))
    with pytest.raises(ValueError, match='total_steps=49 ends before the run does, after 50 iterations'):
        hook.before_run(make_view())


def test_one_cycle_starts_below_its_peak_and_leaves_a_resumed_group_alone():
    hook = build_lr_hook(dict(policy='OneCycle', max_lr=2.5))
    view = make_view(max_iters=None)  # the epoch runner may come to know it only when it sees its loader
    hook.before_run(view)
    assert hook.base_lr == [0.1]
    assert hook.get_lr(make_view(), 0.1) == pytest.approx(0.1)
    assert view.optimizer.param_groups[0]['initial_lr'] == 0.1
    view.optimizer.param_groups[0]['initial_lr'] = 7
    hook.before_run(view)
    assert view.optimizer.param_groups[0]['initial_lr'] == 7
    assert hook.base_lr == [0.1]
