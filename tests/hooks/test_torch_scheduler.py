import logging
import warnings
from itertools import product
from types import SimpleNamespace

import pytest
import torch
from support import loader, tiny_runner
from torch.optim import lr_scheduler

from runnerkit.hooks import build_lr_hook
from runnerkit.hooks.hook import Outcome
from runnerkit.hooks.torch_scheduler import LR_SCHEDULERS, build_scheduler, find_scheduler, scheduler_names, takes_epoch

LENGTH = 5


def sgd(lr=0.1):
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=lr, momentum=0.9)


def make_view(optimizer, by_epoch=True):
    return SimpleNamespace(
        optimizer=optimizer,
        epoch=0,
        iter=0,
        by_epoch=by_epoch,
        logger=logging.getLogger('test'),
        outputs=dict(log_vars=dict(loss=1.0), num_samples=2),
        outcome=Outcome('completed'),
    )


def read(optimizer):
    group = optimizer.param_groups[0]
    return group['lr'], group['momentum']


def drive(hook, view, start, stop, losses=None):
    """Train as a runner does, from iteration ``start`` on; returns learning rates and momenta."""
    found = []
    for view.iter in range(start, stop):
        view.epoch = view.iter // LENGTH
        hook.before_train_iter(view)
        optimizers = view.optimizer.values() if isinstance(view.optimizer, dict) else [view.optimizer]
        found.extend(read(optimizer) for optimizer in optimizers)
        for optimizer in optimizers:
            optimizer.step()
        if losses:
            view.outputs['log_vars'] = dict(loss=losses[view.iter])
        hook.after_train_iter(view)
        if view.by_epoch and (view.iter + 1) % LENGTH == 0:
            hook.after_train_epoch(view)
    return found


def plain_loop(name, arguments, by_epoch, iters):
    """What torch's documentation does."""
    optimizer = sgd()
    scheduler = getattr(lr_scheduler, name)(optimizer, **arguments)
    found = []
    for i in range(iters):
        found.append(read(optimizer))
        optimizer.step()
        if not by_epoch or (i + 1) % LENGTH == 0:
            scheduler.step()
    return found


SETTINGS = [
    ('CosineAnnealingLR', dict(T_max=8)),
    ('MultiStepLR', dict(milestones=[2, 5, 5])),
    ('ExponentialLR', dict(gamma=0.9)),
    ('OneCycleLR', dict(max_lr=1.0, total_steps=40)),
    ('LambdaLR', dict(lr_lambda=lambda n: 1 / (n + 1))),
]


@pytest.mark.parametrize(('name', 'arguments'), SETTINGS)
def test_resumed_run_follows_the_same_curve(name, arguments):
    for by_epoch, runner_by_epoch, stop, early in product((True, False), (True, False), (3, 5, 12, 15), (True, False)):
        resume(name, arguments, by_epoch, runner_by_epoch, stop, early)


def resume(name, arguments, by_epoch, runner_by_epoch, stop, early):
    """Stop and go on; the state comes ``early``, before the run, or in it."""
    config = dict(policy=name, by_epoch=by_epoch, **arguments)
    first, view = build_lr_hook(config), make_view(sgd(), runner_by_epoch)
    first.before_run(view)
    whole = plain_loop(name, arguments, by_epoch, 39)
    assert drive(first, view, 0, stop) == whole[:stop]
    state, groups = first.state_dict(), view.optimizer.state_dict()

    hook, view = build_lr_hook(config), make_view(sgd(), runner_by_epoch)
    view.optimizer.load_state_dict(groups)
    view.iter, view.epoch = stop, stop // LENGTH
    if early:
        hook.load_state_dict(state)
        assert hook.state_dict()['schedulers'] == {}
    hook.before_run(view)
    if not early:
        hook.load_state_dict(state)
    assert drive(hook, view, stop, 30) == whole[stop:30]


def test_resuming_without_a_state_says_so(caplog):
    hook, view = build_lr_hook(dict(policy='StepLR', step_size=1)), make_view(sgd())
    hook.before_run(view)
    drive(hook, view, 0, 2)
    assert caplog.messages == []
    hook = build_lr_hook(dict(policy='StepLR', step_size=1))
    view.iter = 2
    hook.before_run(view)
    drive(hook, view, 2, 5)
    assert caplog.messages == ['StepLR starts over at iteration 2: the checkpoint has no state of it']


def constant(step):
    return 1.0


CHANGED = [
    ('StepLR', dict(step_size=3, gamma=0.1), True),
    ('StepLR', dict(step_size=3, gamma=0.5), False),
    ('LambdaLR', dict(lr_lambda=[constant]), True),
    ('CosineAnnealingLR', dict(T_max=8), True),
    ('OneCycleLR', dict(max_lr=1.0, total_steps=40), False),
    ('CyclicLR', dict(base_lr=0.01, max_lr=0.3, step_size_up=4), False),
    (
        'SequentialLR',
        dict(schedulers=[dict(policy='LinearLR'), dict(policy='ExponentialLR', gamma=0.5)], milestones=[2]),
        True,
    ),
]


@pytest.mark.parametrize('early', [True, False])
@pytest.mark.parametrize('name, arguments, by_epoch', CHANGED)
def test_a_schedule_that_has_changed_since_the_checkpoint_is_entered_where_the_run_is(name, arguments, by_epoch, early):
    def build(policy, arguments, by_epoch):
        return build_lr_hook(dict(policy=policy, by_epoch=by_epoch, **arguments))

    first, view = build('StepLR', dict(step_size=1, gamma=0.5), True), make_view(sgd())
    first.before_run(view)
    drive(first, view, 0, 12)
    groups = view.optimizer.state_dict()
    whole, view = build(name, arguments, by_epoch), make_view(sgd())
    whole.before_run(view)
    expected = drive(whole, view, 0, 30)
    resumed, view = build(name, arguments, by_epoch), make_view(sgd())
    view.optimizer.load_state_dict(groups)
    view.iter, view.epoch = 12, 12 // LENGTH
    if early:
        resumed.load_state_dict(first.state_dict())
    resumed.before_run(view)
    if not early:
        resumed.load_state_dict(first.state_dict())
    assert drive(resumed, view, 12, 30) == expected[12:]


def test_several_optimizers():
    optimizers = dict(G=sgd(1.0), D=sgd(0.5))
    hook, view = build_lr_hook(dict(policy='StepLR', step_size=1, gamma=0.5)), make_view(optimizers)
    hook.before_run(view)
    assert [lr for lr, _ in drive(hook, view, 0, 6)] == [1.0, 0.5] * 5 + [0.5, 0.25]
    assert hook.state_dict()['schedulers'].keys() == {'G', 'D'}
    alone, view.iter, view.epoch = build_lr_hook(dict(policy='StepLR', step_size=1, gamma=0.5, optimizer='D')), 10, 2
    alone.before_run(view)
    alone.load_state_dict(hook.state_dict())  # which now schedules one of them only
    assert [lr for lr, _ in drive(alone, view, 10, 11)] == [0.5, 0.125]


def test_no_warning_while_gradients_accumulate():
    hook, view = build_lr_hook(dict(policy='StepLR', step_size=1, by_epoch=False)), make_view(sgd())
    hook.before_run(view)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        for view.iter in range(3):
            hook.before_train_iter(view)
            hook.after_train_iter(view)


def plateau(monitor, **kwargs):
    return build_lr_hook(dict(policy='ReduceLROnPlateau', monitor=monitor, patience=0, factor=0.5, **kwargs))


@pytest.mark.parametrize('as_tensor', [True, False])
def test_plateau_of_the_training_loss_by_epoch(as_tensor):
    """The epochs' means are 3, 2, 2.5: the third is no better than the second."""
    losses = [5.0, 1.0, 3.0, 3.0, 3.0, 2.0, 2.0, 2.0, 2.0, 2.0, 0.5, 4.5, 2.5, 2.5, 2.5, 0.0]
    if as_tensor:
        losses = [torch.tensor(loss, requires_grad=True) * 1 for loss in losses]
    hook, view = plateau('train/loss'), make_view(sgd(1.0))
    hook.before_run(view)
    drive(hook, view, 0, 12, losses)
    state = hook.state_dict()
    assert state['count'] == 4
    assert not (as_tensor and state['sum'].requires_grad)

    resumed, other = plateau('train/loss'), make_view(view.optimizer)
    other.iter = 12
    resumed.before_run(other)
    resumed.load_state_dict(state)
    found = drive(resumed, other, 12, 16, losses)
    assert [lr for lr, _ in found] == [1.0, 1.0, 1.0, 0.5]


def test_plateau_of_what_the_model_does_not_log():
    hook, view = plateau('train/acc'), make_view(sgd())
    hook.before_run(view)
    with pytest.raises(KeyError, match=r"monitor='train/acc': the model's log_vars have no 'acc', only \['loss'\]"):
        drive(hook, view, 0, 1)


def test_plateau_of_an_evaluation(caplog):
    hook, view = plateau('val/acc', mode='max'), make_view(sgd(1.0))
    hook.before_run(view)
    curve = []
    for found in (dict(acc=0.5), dict(acc=0.6), dict(other=1.0), dict(acc=0.6), dict(acc=0.6)):
        drive(hook, view, view.iter, view.iter + LENGTH)
        hook.after_evaluate(view, found)
        used = read(view.optimizer)
        hook.before_train_epoch(view)
        curve.append((used[0], read(view.optimizer)[0]))
    assert curve == [(1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (1.0, 0.5), (0.5, 0.25)]
    hook.after_run(view)
    assert caplog.messages == []


def test_evaluations_that_never_find_the_number(caplog):
    hook, view = plateau('val/acc'), make_view(sgd(1.0))
    hook.before_run(view)
    hook.after_evaluate(view, dict(accuracy=1.0))
    hook.after_run(SimpleNamespace(logger=view.logger, outcome=Outcome('interrupted')))
    assert caplog.messages == []
    hook.after_run(view)
    assert caplog.messages == ["ReduceLROnPlateau did nothing: no evaluation has found its monitor='val/acc'"]


@pytest.mark.parametrize(
    ('config', 'error', 'message'),
    [
        (dict(policy='StepLR'), TypeError, "StepLR: missing a required argument: 'step_size'; it takes"),
        (dict(policy='StepLR', step_size=1, gama=1), TypeError, "unexpected keyword argument 'gama'"),
        (dict(policy='StepLR', step_size=1, warmup='linear'), ValueError, 'takes no warmup; .*SequentialLR'),
        (
            dict(policy='StepLR', step_size=1, monitor='val/a'),
            ValueError,
            "no number: leave monitor='val/a' out",
        ),
        (dict(policy='ReduceLROnPlateau'), ValueError, "monitor='train/loss' or 'val/accuracy', got None"),
        (dict(policy='ReduceLROnPlateau', monitor='loss'), ValueError, "got 'loss'"),
        (dict(policy='SequentialLR', milestones=[1]), TypeError, "'schedulers'"),
        (dict(policy='StepLR', step_siz=1), TypeError, "it takes step_size, gamma.*; did you mean 'step_size'"),
        (dict(type='TorchLrUpdaterHook', scheduler='StepLr'), KeyError, "no 'StepLr'; did you mean 'StepLR'"),
    ],
)
def test_wrong_settings(config, error, message):
    with pytest.raises(error, match=message):
        build_lr_hook(config)


def taken_on_rank(rank):
    """The scores by which a rank's scheduler has taken its steps."""
    taken = []
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    hook = build_lr_hook({'policy': 'ReduceLROnPlateau', 'monitor': 'train/loss'})
    view = SimpleNamespace(optimizer=optimizer, epoch=0, iter=0, by_epoch=True, logger=None)
    hook.before_run(view)
    hook.schedulers['optimizer'].step = taken.append
    view.outputs = {'log_vars': {'loss': 1.0 + rank}, 'num_samples': 3 - 2 * rank}
    hook.after_train_iter(view)
    hook.after_train_epoch(view)
    hook.before_train_epoch(view)
    return taken


def test_several_ranks_take_the_same_steps(on_ranks):
    """Training numbers are averaged over all samples of all ranks; an evaluation's scores are the same everywhere."""
    assert on_ranks(__file__, 'taken_on_rank') == [[1.25], [1.25]]


@pytest.mark.parametrize('by_epoch', [True, False])
@pytest.mark.parametrize(('name', 'length', 'arguments'), [
    ('OneCycleLR', 'total_steps', dict(max_lr=1.0)), ('CosineAnnealingLR', 'T_max', {}),
])  # fmt: skip
def test_a_length_that_is_left_out_is_that_of_the_run(name, length, arguments, by_epoch):
    total = 8 if by_epoch else 40
    config = dict(policy=name, by_epoch=by_epoch, **arguments)
    hook, view = build_lr_hook(config), make_view(sgd())
    view.max_epochs, view.max_iters = 8, 40
    hook.before_run(view)
    whole = plain_loop(name, {**arguments, length: total}, by_epoch, 39)
    assert drive(hook, view, 0, 12) == whole[:12]
    state, groups = hook.state_dict(), view.optimizer.state_dict()
    resumed, view = build_lr_hook(config), make_view(sgd())
    view.optimizer.load_state_dict(groups)
    view.iter, view.epoch, view.max_epochs, view.max_iters = 12, 12 // LENGTH, 8, 40
    resumed.before_run(view)
    resumed.load_state_dict(state)
    assert drive(resumed, view, 12, 39) == whole[12:]


@pytest.mark.parametrize('name, length, arguments', [
    ('OneCycleLR', 'total_steps', dict(max_lr=1.0)), ('CosineAnnealingLR', 'T_max', {}),
])  # fmt: skip
def test_a_resumed_run_of_another_length_follows_the_schedule_of_its_own_length(name, length, arguments):
    def started(epochs):
        hook, view = build_lr_hook(dict(policy=name, **arguments)), make_view(sgd())
        view.max_epochs = epochs
        return hook, view

    first, view = started(8)
    first.before_run(view)
    drive(first, view, 0, 20)
    longer, other = started(9)
    other.optimizer.load_state_dict(view.optimizer.state_dict())
    other.iter, other.epoch = 20, 4
    longer.before_run(other)
    longer.load_state_dict(first.state_dict())
    assert drive(longer, other, 20, 40) == plain_loop(name, {**arguments, length: 9}, True, 40)[20:]


PLATEAU = dict(policy='ReduceLROnPlateau', monitor='train/loss', patience=1, factor=0.5)


@pytest.mark.parametrize('now, rates', [
    ({}, [0.05, 0.05, 0.025]),
    ({'factor': 0.1}, [0.05, 0.05, 0.005]),
    ({'patience': 0}, [0.05, 0.025, 0.0125]),
    ({'mode': 'max'}, [0.05, 0.05, 0.05]),  # the losses rise
    ({'monitor': 'train/other'}, [0.05, 0.05, 0.05]),
])  # fmt: skip
def test_a_plateau_keeps_its_reductions_and_takes_the_new_settings(now, rates):
    """The resumed run begins after one reduction; its losses get worse."""

    def losses(hook, view, values):
        found = []
        for view.epoch, value in enumerate(values, view.epoch):
            view.outputs['log_vars'] = dict(loss=value, other=-value)
            hook.after_train_iter(view)
            found.append(round(read(view.optimizer)[0], 6))
            hook.after_train_epoch(view)
            hook.before_train_epoch(view)
        return found

    hook, view = build_lr_hook(PLATEAU), make_view(sgd())
    hook.before_run(view)
    losses(hook, view, [1.0, 2.0, 3.0])
    assert read(view.optimizer)[0] == 0.05
    state, groups = hook.state_dict(), view.optimizer.state_dict()
    hook, view = build_lr_hook({**PLATEAU, **now}), make_view(sgd())
    view.optimizer.load_state_dict(groups)
    view.epoch = 3
    hook.before_run(view)
    hook.load_state_dict(state)
    assert losses(hook, view, [4.0, 5.0, 6.0]) == rates


def test_a_length_that_is_left_out_must_be_known():
    hook, view = build_lr_hook(dict(policy='CosineAnnealingLR')), make_view(sgd())
    view.max_epochs = None
    with pytest.raises(ValueError, match='give T_max, or max_epochs of the runner, or by_epoch=False'):
        hook.before_run(view)


# --- torch's schedulers by name --------------------------------------------------------------------------------------


@pytest.mark.parametrize('name', ['LRScheduler', '_LRScheduler', 'Optimizer', 'partial', 'warnings', 'nothing'])
def test_what_is_no_scheduler(name):
    assert find_scheduler(name) is None
    with pytest.raises(KeyError, match=f"has no '{name}', only LambdaLR"):
        build_scheduler(name, sgd())


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
        build_lr_hook(dict(policy='SequentialLR', schedulers=[part], milestones=[]))


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


def test_a_resume_at_the_last_iteration_of_an_epoch_takes_no_step_more(tmp_path):
    """Steps of iterations are taken before an iteration: the resumed epoch has none left."""

    def rate(resume=None):
        runner = tiny_runner(work_dir=tmp_path, max_epochs=2)
        runner.register_optimizer_hook(dict())
        runner.register_lr_hook(dict(policy='StepLR', by_epoch=False, step_size=1, gamma=0.5))
        runner.register_checkpoint_hook(dict(interval=1, by_epoch=False))
        if resume:
            runner.resume(str(tmp_path / resume))
        runner.run([loader(8)], [('train', 1)])
        return runner.current_lr()

    wanted = rate()
    assert rate('iter_4.pth') == wanted
