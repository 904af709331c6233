"""What a dry run foretells of learning rates and momenta."""

import copy
import logging
from types import SimpleNamespace

import pytest
import torch
from support import benchmark

from runnerkit.flow.look.preview import preview_curves
from runnerkit.hooks import Hook, build_lr_hook, build_momentum_hook
from runnerkit.hooks.lr_updater import LrUpdaterHook

golden = benchmark('golden_curves')


def sgd(groups=1, **options):
    parameters = [{'params': [torch.nn.Parameter(torch.zeros(1))]} for _ in range(groups)]
    return torch.optim.SGD(parameters, **{'lr': 1.0, 'momentum': 0.9, **options})


def preview(hooks, optimizer=None, max_epochs=None, max_iters=None, length=7, **more):
    """The curves as (title, source, values), of hooks and an optimizer that must stay as they are."""
    optimizer = sgd() if optimizer is None else optimizer
    limits = {'max_epochs': max_epochs, 'max_iters': max_iters}
    runner = SimpleNamespace(hooks=hooks, optimizer=optimizer, logger=logging.getLogger('runnerkit'), **limits, **more)
    before = copy.deepcopy((optimizer, [vars(hook) for hook in hooks]))
    found = preview_curves(runner, length)
    assert [vars(hook) for hook in hooks] == before[1]
    for one, other in zip(golden.groups_of(before[0]), golden.groups_of(optimizer), strict=True):
        assert {**one, 'params': 0} == {**other, 'params': 0}
    return [(curve.title, curve.source, curve.values) for curve in found]


def test_a_schedule_of_the_learning_rate():
    ((title, source, values),) = preview(
        [Hook(), build_lr_hook(dict(policy='step', step=[1], gamma=0.5))], max_epochs=2
    )
    assert (title, source) == ('Learning rate', 'StepLrUpdaterHook')
    assert values == [1.0] * 7 + [0.5] * 7


def test_a_policy_of_torch_and_a_momentum_of_ours():
    """Each under its own name; once, the momentum was shown as the learning rate."""
    hooks = [
        build_lr_hook(dict(policy='StepLR', step_size=1, gamma=0.5)),
        build_momentum_hook(dict(policy='step', step=[1], gamma=0.1)),
    ]
    rate, momentum = preview(hooks, max_epochs=2)
    assert rate == ('Learning rate', 'StepLR', [1.0] * 7 + [0.5] * 7)
    assert momentum[:2] == ('Momentum', 'StepMomentumUpdaterHook')
    assert momentum[2] == pytest.approx([0.9] * 7 + [0.09] * 7)


def test_a_policy_of_torch_that_moves_the_momentum_too():
    hook = build_lr_hook(dict(policy='OneCycleLR', max_lr=1.0, total_steps=15, by_epoch=False))
    rate, momentum = preview([hook], max_epochs=2)
    assert (rate[0], momentum[0], momentum[1]) == ('Learning rate', 'Momentum', 'OneCycleLR')
    assert rate[2].index(max(rate[2])) == momentum[2].index(min(momentum[2])) == 4


def test_a_momentum_that_stays_has_its_curve_if_it_has_a_schedule():
    hook = build_momentum_hook(dict(policy='step', step=[100]))
    assert preview([hook], max_iters=2) == [
        ('Learning rate', 'no schedule', [1.0, 1.0]),
        ('Momentum', 'StepMomentumUpdaterHook', [0.9, 0.9]),
    ]


def test_several_optimizers_and_parameter_groups():
    hook = build_lr_hook(dict(policy='exp', gamma=0.5, by_epoch=False))
    assert preview([hook], dict(G=sgd(), D=sgd(2, lr=4.0)), max_iters=2) == [
        ('Learning rate of G', 'ExpLrUpdaterHook', [1.0, 0.5]),
        ('Learning rate of D', 'ExpLrUpdaterHook; the first of 2 parameter groups', [4.0, 2.0]),
    ]


def test_a_rate_that_follows_scores_is_not_foretold():
    hook = build_lr_hook(dict(policy='ReduceLROnPlateau', monitor='train/loss'))
    assert preview([hook], max_iters=2) == [('Learning rate', 'no schedule', [1.0, 1.0])]


def test_a_run_that_ends_inside_an_epoch():
    values = preview([build_lr_hook(dict(policy='poly'))], max_iters=15)[0][2]
    assert values == pytest.approx([1.0] * 7 + [2 / 3] * 7 + [1 / 3])
    values = preview([build_lr_hook(dict(policy='poly', by_epoch=False))], max_epochs=2, max_iters=5)[0][2]
    assert values == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])


def test_a_rate_that_is_a_tensor_stays_one():
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=torch.tensor(0.5))
    assert preview([build_lr_hook(dict(policy='exp', gamma=0.5))], optimizer, 2)[0][2] == [0.5] * 7 + [0.25] * 7


def test_a_hook_of_yours_may_read_anything_of_the_runner():
    class Own(LrUpdaterHook):
        def get_lr(self, runner, base_lr):
            return runner.model.factor * base_lr * (runner.epoch + 1)

    found = preview([Own()], max_epochs=2, length=1, model=SimpleNamespace(factor=3))
    assert found == [('Learning rate', 'Own', [3.0, 6.0])]


def test_without_an_end():
    with pytest.raises(ValueError, match='give max_epochs or max_iters'):
        preview([])
