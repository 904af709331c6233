import pytest
import torch
from torch.optim import lr_scheduler

from runnerkit.optim.torch_schedules import (
    LR_SCHEDULERS,
    build_scheduler,
    find_scheduler,
    load_plain_state,
    plain_state,
    scheduler_names,
    takes_epoch,
)

SETTINGS = {
    'LambdaLR': dict(lr_lambda=lambda n: 1 / (n + 1)),
    'MultiplicativeLR': dict(lr_lambda=lambda n: 0.9),
    'StepLR': dict(step_size=3),
    'MultiStepLR': dict(milestones=[2, 2, 6]),
    'ConstantLR': {},
    'LinearLR': {},
    'ExponentialLR': dict(gamma=0.9),
    'PolynomialLR': {},
    'CosineAnnealingLR': dict(T_max=10),
    'CosineAnnealingWarmRestarts': dict(T_0=3),
    'CyclicLR': dict(base_lr=0.1, max_lr=1.0, step_size_up=3),
    'OneCycleLR': dict(max_lr=1.0, total_steps=20),
    'SequentialLR': dict(
        schedulers=[dict(policy='LinearLR', total_iters=3), dict(policy='MultiStepLR', milestones=[2, 5])],
        milestones=[4],
    ),
    'ChainedScheduler': dict(schedulers=[dict(policy='ConstantLR'), dict(policy='ExponentialLR', gamma=0.9)]),
    'ReduceLROnPlateau': dict(patience=1),
}


def sgd():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9)


def run(scheduler, optimizer, steps):
    found = []
    for _ in range(steps):
        optimizer.step()
        scheduler.step(*([1.0] if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) else []))
        found.append((optimizer.param_groups[0]['lr'], optimizer.param_groups[0]['momentum']))
    return found


def test_every_scheduler_of_torch_is_covered():
    assert set(scheduler_names()) == set(SETTINGS)
    assert all(find_scheduler(name) is getattr(lr_scheduler, name) for name in SETTINGS)


@pytest.mark.parametrize('name', ['LRScheduler', '_LRScheduler', 'Optimizer', 'partial', 'warnings', 'nothing'])
def test_what_is_no_scheduler(name):
    assert find_scheduler(name) is None
    with pytest.raises(KeyError, match=f"has no '{name}', only LambdaLR"):
        build_scheduler(name, sgd())


def only_plain(value):
    if isinstance(value, dict):
        return type(value) is dict and all(only_plain(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return all(only_plain(item) for item in value)
    return value is None or type(value) in (int, float, str, bool)


@pytest.mark.filterwarnings('ignore:.*epoch parameter in `scheduler.step:UserWarning')
@pytest.mark.parametrize('name', SETTINGS)
def test_state_is_plain_and_continues(name):
    optimizer = sgd()
    scheduler = build_scheduler(name, optimizer, **SETTINGS[name])
    assert type(scheduler) is find_scheduler(name)
    run(scheduler, optimizer, 3)
    state, groups = plain_state(scheduler), optimizer.state_dict()
    assert only_plain(state)
    other = sgd()
    resumed = build_scheduler(name, other, **SETTINGS[name])
    other.load_state_dict(groups)
    load_plain_state(resumed, state)
    expected = run(scheduler, optimizer, 10)
    assert run(resumed, other, 10) == expected
    assert len({lr for lr, _ in expected}) > 1


def test_config_of_a_part_is_not_changed():
    settings = dict(schedulers=[dict(policy='LinearLR', total_iters=3)], milestones=[])
    build_scheduler('SequentialLR', sgd(), **settings)
    assert settings == dict(schedulers=[dict(policy='LinearLR', total_iters=3)], milestones=[])


@pytest.mark.parametrize('name, arguments', [('StepLR', {'step_size': 0}), ('CosineAnnealingLR', {'T_max': -1})])
def test_a_length_that_torch_would_divide_by_later(name, arguments):
    with pytest.raises(ValueError, match=rf'{name}: \w+ must be above 0'):
        build_scheduler(name, sgd(), **arguments)
    part = dict(policy=name, **arguments)
    with pytest.raises(ValueError, match='must be above 0'):
        build_scheduler('SequentialLR', sgd(), schedulers=[part], milestones=[])


@pytest.mark.parametrize('part', ['LinearLR', dict(total_iters=3)])
def test_a_part_that_names_no_policy(part):
    with pytest.raises(TypeError, match='schedulers holds dicts such as'):
        build_scheduler('SequentialLR', sgd(), schedulers=[part], milestones=[])


def groups_with(*rates):
    return torch.optim.SGD([{'params': [torch.nn.Parameter(torch.ones(1))], 'lr': rate} for rate in rates], lr=0.1)


def rates_of(optimizer, scheduler, steps):
    found = []
    for _ in range(steps):
        found.append([group['lr'] for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize(
    'name, arguments',
    [
        ('OneCycleLR', dict(max_lr=1.0, total_steps=20, cycle_momentum=False)),
        ('CyclicLR', dict(base_lr=0.2, max_lr=1.0, step_size_up=3, cycle_momentum=False)),
    ],
)
def test_peaks_keep_the_ratios_of_the_groups(name, arguments):
    mixed, plain = groups_with(0.1, 0.01, 0.1, 0.2), groups_with(0.1)
    factors = [1, 0.01 / 0.1, 1, 2]
    expected = [rate for (rate,) in rates_of(plain, build_scheduler(name, plain, **arguments), 15)]
    for found, rate in zip(rates_of(mixed, build_scheduler(name, mixed, **arguments), 15), expected, strict=True):
        assert found == pytest.approx([rate * factor for factor in factors], rel=1e-12)
        assert found[0] == found[2] == rate


def test_peaks_within_a_sequence_keep_the_ratios_too():
    optimizer = groups_with(0.1, 0.01)
    parts = [dict(policy='LinearLR', total_iters=2), dict(policy='OneCycleLR', max_lr=1.0, total_steps=10)]
    parts[1]['cycle_momentum'] = False
    scheduler = build_scheduler('SequentialLR', optimizer, schedulers=parts, milestones=[2])
    for found in rates_of(optimizer, scheduler, 10):
        assert found[0] == pytest.approx(10 * found[1])


def test_given_lists_are_used_as_they_are_and_must_fit():
    optimizer = groups_with(0.1, 0.01)
    build_scheduler('OneCycleLR', optimizer, max_lr=[1.0, 2.0], total_steps=5, div_factor=1, cycle_momentum=False)
    assert [group['lr'] for group in optimizer.param_groups] == [1.0, 2.0]
    optimizer = groups_with(0.1, 0.01, 0.01)
    words = (
        r'max_lr has 2 values, but the optimizer has 3 parameter groups: 0 \(lr 0.1, 1 parameter\), 1 to 2 \(lr 0.01'
    )
    with pytest.raises(ValueError, match=words):
        build_scheduler('OneCycleLR', optimizer, max_lr=[1.0, 2.0], total_steps=5)
    with pytest.raises(ValueError, match='base_lr has 1 value, but'):
        parts = [dict(policy='LinearLR'), dict(policy='CyclicLR', base_lr=[1.0], max_lr=2.0)]
        build_scheduler('SequentialLR', optimizer, schedulers=parts, milestones=[2])


def test_registered_schedulers_are_found_first_and_may_take_the_epoch(monkeypatch):
    class Own(lr_scheduler.LRScheduler):
        def step(self, epoch=None):
            pass

    class Derived(lr_scheduler.StepLR):
        pass

    monkeypatch.setitem(LR_SCHEDULERS.module_dict, 'Own', Own)
    monkeypatch.setitem(LR_SCHEDULERS.module_dict, 'StepLR', Derived)
    assert (find_scheduler('Own'), find_scheduler('StepLR')) == (Own, Derived)
    assert 'Own' in scheduler_names()
    optimizer = groups_with(0.1)
    assert takes_epoch(build_scheduler('Own', optimizer))
    assert not takes_epoch(build_scheduler('StepLR', optimizer, step_size=2))
    assert not takes_epoch(build_scheduler('ExponentialLR', optimizer, gamma=0.9))
