"""The checks of schedules against the run's length: three epochs of five iterations."""

import pytest
from plans import BY_ITER, plan, said, told

from runnerkit.flow.preflight import Plan


def lr(policy, **options):
    return {'lr_config': {'policy': policy, **options}}


def restart(*periods):
    return lr('CosineRestart', periods=list(periods), restart_weights=[1] * len(periods), min_lr=0)


def plateau(**options):
    return lr('ReduceLROnPlateau', monitor='val/error', **options)


COSINE = {'policy': 'CosineAnnealing', 'min_lr': 0}
NO_EVALUATION = {'evaluation': None}
ONE = {'runner.max_epochs': 1}

CASES = [
    ('warning', lr('step', step=[2, 3]), 'lr_config.step', '3 is not reached: the run ends after 3 epochs\n',
     lr('step', step=[1, 2])),
    ('warning', lr('step', step=[8, 11]), 'lr_config.step', 'none of its steps', lr('step', step=[2])),
    ('warning', lr('step', step=3), 'lr_config.step', 'none of its steps', lr('step', step=2)),
    ('warning', {**BY_ITER, **lr('step', step=[10], by_epoch=True)}, 'lr_config.step', 'by_epoch=False',
     lr('step', step=[10])),
    ('warning', lr('MultiStepLR', milestones=[2, 5]), 'lr_config.milestones', '5 is not', lr('StepLR', step_size=2)),
    ('warning', lr('StepLR', step_size=3), 'lr_config.step_size', 'none of its', lr('MultiStepLR', milestones=[2])),
    ('warning', {'lr_config.warmup': 'linear', 'lr_config.warmup_iters': 16}, 'lr_config.warmup_iters',
     '16 iterations, but the run has 15', {'lr_config.warmup_iters': 15}),
    ('warning', {'lr_config.warmup': 'linear', 'lr_config.warmup_iters': 4, 'lr_config.warmup_by_epoch': True},
     'lr_config.warmup_iters', '4 epochs', {'lr_config.warmup_iters': 2}),
    ('error', {**BY_ITER, 'lr_config': {**COSINE, 'by_epoch': True}}, 'lr_config.by_epoch', 'counts epochs',
     {'lr_config': COSINE}),
    ('error', {**BY_ITER, **lr('OneCycleLR', max_lr=0.1, by_epoch=True)}, 'lr_config.by_epoch', 'counts epochs',
     lr('OneCycleLR', max_lr=0.1, by_epoch=False)),
    ('error', restart(1, 1), 'lr_config.periods', 'add up to 2', restart(1, 2)),
    ('warning', restart(3, 1), 'lr_config.periods', 'begin at 3', restart(2, 2)),
    ('error', lr('cyclic', cyclic_times=16), 'lr_config.cyclic_times', '15 iterations', lr('cyclic', cyclic_times=3)),
    ('error', lr('OneCycle', max_lr=0.1, total_steps=14), 'lr_config.total_steps', '14 steps',
     lr('OneCycle', max_lr=0.1, total_steps=15)),
    ('error', lr('OneCycleLR', max_lr=0.1, total_steps=14, by_epoch=False), 'lr_config.total_steps', '14 steps',
     lr('OneCycleLR', max_lr=0.1, epochs=3, steps_per_epoch=5, by_epoch=False)),
    ('error', lr('OneCycleLR', max_lr=0.1, epochs=2, steps_per_epoch=5, by_epoch=False), 'lr_config.total_steps',
     '10 steps', lr('OneCycleLR', max_lr=0.1, total_steps=15, by_epoch=False)),
    ('warning', lr('CosineAnnealingLR', T_max=4), 'lr_config.T_max', 'never reached', lr('CosineAnnealingLR', T_max=3)),
    ('warning', lr('CosineAnnealingLR', T_max=3, by_epoch=False), 'lr_config.T_max', 'rises again',
     lr('CosineAnnealingLR', T_max=15, by_epoch=False)),
    ('warning', lr('LinearLR', total_iters=4), 'lr_config.total_iters', 'never', lr('LinearLR', total_iters=2)),
    ('warning', {**ONE, 'lr_config': COSINE}, 'lr_config.by_epoch', 'never changes',
     {'lr_config': {**COSINE, 'by_epoch': False}}),
    ('warning', {**ONE, **lr('ExponentialLR', gamma=0.5)}, 'lr_config.by_epoch', 'never changes',
     lr('ExponentialLR', gamma=0.5, by_epoch=False)),
    ('error', {'optimizer': {'type': 'Adagrad', 'lr': 0.1}, 'momentum_config': {'policy': 'step', 'step': 1}},
     'momentum_config', 'has no momentum', {'optimizer': {'type': 'Adam', 'lr': 0.1}}),
    ('warning', {'momentum_config': {'policy': 'step', 'step': 4}}, 'momentum_config.step', 'none of its',
     {'momentum_config.step': 2}),
    ('warning', {'lr_config': {**COSINE, 'min_lr': 0.2}}, 'lr_config.min_lr', 'above the learning rate 0.1',
     {'lr_config.min_lr': 0.1}),
    ('warning', {'lr_config.gamma': 10}, 'lr_config.gamma', 'Write 0.1', {'lr_config.gamma': 1}),
    ('warning', lr('exp', gamma=1.1), 'lr_config.gamma', 'raises', lr('inv', gamma=1.1)),
    ('error', {**plateau(patience=1), **NO_EVALUATION}, 'lr_config.monitor', 'nothing is evaluated',
     {'workflow': [('train', 1), ('val', 1)]}),
    ('warning', plateau(), 'lr_config.patience', '10 evaluations', plateau(patience=1)),
]  # fmt: skip


@pytest.mark.parametrize('level, wrong, key, words, right', CASES)
def test_wrong_and_right(level, wrong, key, words, right, tmp_path):
    assert told(plan(tmp_path, wrong), level, key, words), said(plan(tmp_path, wrong))
    assert said(plan(tmp_path, wrong, right)) == []


@pytest.mark.parametrize(
    'steps, by_epoch, hinted', [([30], True, True), ([29], True, False), ([150], True, False), ([200], False, False)]
)
def test_steps_that_look_like_iterations(steps, by_epoch, hinted, tmp_path):
    """In a run of 3 epochs or 150 iterations."""
    ((_, text),) = said(plan(tmp_path, lr('step', step=steps, by_epoch=by_epoch), length=200))
    assert ('by_epoch=False' in text) is hinted


@pytest.mark.parametrize(
    'schedule',
    [
        lr('step', step=[99]),
        lr('StepLR', step_size=99),
        restart(1, 1),
        lr('OneCycle', max_lr=0.1, total_steps=1),
        lr('OneCycleLR', max_lr=0.1, total_steps=1),
        lr('CosineAnnealingLR', T_max=99),
        lr('fixed', warmup='linear', warmup_iters=99),
    ],
)
def test_a_stream_has_no_iterations_to_compare_with(schedule, tmp_path):
    of = plan(tmp_path, schedule, {'lr_config.by_epoch': False})
    assert said(of)
    assert said(Plan(of.cfg, of.runner, [iter(())], of.workflow)) == []


def test_a_policy_that_needs_the_length_of_a_stream(tmp_path):
    of = plan(tmp_path, {'lr_config': {**COSINE, 'by_epoch': False}})
    assert told(Plan(of.cfg, of.runner, [iter(())], of.workflow), 'error', 'lr_config.by_epoch', 'Set max_iters')
    of = plan(tmp_path, {'lr_config': COSINE})
    assert said(Plan(of.cfg, of.runner, [iter(())], of.workflow)) == []


def test_a_schedule_without_an_optimizer(tmp_path):
    of = plan(tmp_path)
    of.runner.optimizer = None
    assert told(of, 'error', 'lr_config', 'the runner has none')


def test_what_fails_later_is_what_is_refused(tmp_path):
    """Errors here are errors of the run; without the check it would fail in the middle."""
    for wrong in (restart(1, 1), lr('OneCycleLR', max_lr=0.1, total_steps=13, by_epoch=False)):
        of = plan(tmp_path, wrong, {'log_config': None, 'evaluation': None, 'checkpoint_config': None})
        with pytest.raises(ValueError, match='period|steps'):
            of.runner.run(of.loaders, of.workflow)
        assert of.runner.completed_iters > 5
