"""The checks of single hooks."""

from contextlib import contextmanager

import pytest
from plans import BY_ITER, plan, said, told
from support import Noisy
from torch.utils.data import DataLoader

from runnerkit.flow.preflight import Plan
from runnerkit.flow.preflight.hooks import FOREIGN, _foreign
from runnerkit.hooks import HOOKS, EvalHook, Hook, LoggerHook
from runnerkit.hooks.hook import RINGS
from runnerkit.hooks.hook_table import CALLED
from runnerkit.runner import EpochBasedRunner


def hook(name, **methods):
    """A registered hook class with these methods."""
    return HOOKS.register_module(name=name, module=type(name, (Hook,), methods))


def listens(self, runner):
    """Is called with the runner."""


hook('PlanDeaf', helper=listens)
hook('PlanStoring', state_dict=lambda self: {}, load_state_dict=lambda self, state: None)
hook('PlanListens', after_train_iter=listens)
hook('PlanGeneric', before_epoch=listens)
hook('PlanRing', around_run=contextmanager(listens))
hook('PlanSaves', after_save=listens)
hook('PlanEvaluates', after_evaluate=lambda self, runner, scores: None)
hook('PlanEpochs', after_train_epoch=listens)
hook('PlanVal', after_val_iter=listens)
hook('PlanValEpochs', before_val_epoch=listens)
hook('PlanBoth', after_train_iter=listens, after_val_iter=listens)
hook('PlanLightning', on_train_epoch_end=listens, after_train_iter=listens)
hook('PlanMMEngine', before_train=listens)
hook('PlanOdd', after_validation_is_over=listens, before_run=listens)
hook('PlanNoRunner', after_train_iter=lambda self: None)
hook('PlanNoScores', after_evaluate=listens)


@HOOKS.register_module()
class PlanLogs(LoggerHook):
    after_val_iter = listens

    def log(self, runner):
        """Nothing."""


class Judged(Noisy):
    def evaluate(self, results, logger=None):
        return {'acc': 0.5}


def custom(*hooks):
    return {'custom_hooks': [each if isinstance(each, dict) else {'type': each} for each in hooks]}


RIGHT = custom('PlanListens')
FIRST = 'custom_hooks[0]'
CAPTURE = {'type': 'CaptureHook', 'modules': ['model.1']}
SGD = {'type': 'SGD', 'lr': 0.1}
SEVERAL = {
    'optimizer': {'first': {**SGD, 'params': 'model.0.*'}, 'second': {**SGD, 'params': 'model.1.*'}},
    'lr_config.optimizer': 'first',
}
EMA = {'type': 'EMAHook', 'momentum': 0.999}
LOGS = {'type': 'PlanLogs', 'interval': 5}
VEGA = {'type': 'VegaCallbacks', 'callbacks': []}

CASES = [
    ('warning', custom('PlanDeaf'), FIRST, 'PlanDeaf is never called', RIGHT),
    ('warning', custom('PlanStoring'), FIRST, 'never called', custom('PlanRing')),
    ('warning', {**BY_ITER, **custom('PlanEpochs')}, FIRST, 'runner has no epochs', custom('PlanGeneric')),
    ('warning', {'evaluation': None, **custom('PlanVal')}, FIRST, "no 'val' entry, and there is no evaluation",
     {'workflow': [('train', 1), ('val', 1)]}),
    ('warning', {'evaluation': None, **custom('PlanVal')}, FIRST, 'Write evaluation=dict(interval=1)',
     {'evaluation': {'interval': 1}}),
    ('warning', custom(LOGS), FIRST, 'PlanLogs.after_val_iter: never called, since PlanLogs.hears_evaluations',
     custom('PlanVal')),
    ('warning', custom(LOGS), FIRST, 'Set hears_evaluations = True in the class',
     {'workflow': [('train', 1), ('val', 1)]}),
    ('warning', {**BY_ITER, **custom('PlanEpochs')}, FIRST, 'runner has no epochs', custom('PlanValEpochs')),
    ('warning', custom('PlanLightning'), FIRST, 'Call it after_train_epoch', custom('PlanEpochs')),
    ('warning', custom('PlanMMEngine'), FIRST, 'Call it before_run', custom('PlanSaves')),
    ('warning', custom('PlanOdd'), FIRST, 'after_validation_is_over: it is not a point', custom('PlanEvaluates')),
    ('error', custom(VEGA), FIRST, 'VegaCallbacks is called before the EvalHook', custom({**VEGA, 'priority': 'LOW'})),
    ('error', {**BY_ITER, **custom(VEGA)}, FIRST, 'counts epochs, but the IterBasedRunner', RIGHT),
    ('error', custom('PlanNoRunner'), FIRST, 'cannot be called with (runner)', RIGHT),
    ('error', custom('PlanNoScores'), FIRST, 'cannot be called with (runner, scores)', custom('PlanEvaluates')),
    (
        'warning',
        {'log_config': {'hooks': [{'type': 'TensorboardLoggerHook'}]}},
        'log_config.hooks',
        "Add dict(type='TextLoggerHook')",
        {'log_config': {'hooks': []}},
    ),
    ('warning', custom(EMA), FIRST + '.momentum', 'write momentum=0.001', custom({**EMA, 'momentum': 0.001})),
    ('warning', custom({**EMA, 'interval': 3}), FIRST + '.momentum', 'momentum=0.999 ',
     custom({**EMA, 'momentum': 0.4})),
    ('warning', custom('EMAHook', 'EMAHook'), 'custom_hooks[1]', 'two EMAHooks', custom('EMAHook')),
    ('warning', custom('IterTimerHook'), FIRST, 'two IterTimerHooks', {'timer_config': None}),
    ('warning', custom({'type': 'TextLoggerHook', 'interval': 5}), FIRST, 'written twice', {'log_config': None}),
    ('warning', custom('CheckpointHook'), FIRST, 'the same folder', custom({'type': 'CheckpointHook', 'out_dir': 'x'})),
    ('error', custom({**CAPTURE, 'modules': ['model.1', 'model.3']}), FIRST + '.modules',
     "no submodule 'model.3'; did you mean 'model.1'", custom(CAPTURE)),
    ('warning', {'compile': {'backend': 'eager'}, **custom(CAPTURE)}, FIRST + '.modules', 'runs without compile',
     custom({**CAPTURE, 'interval': 2})),
    ('warning', {'evaluation.hooks': [CAPTURE]}, 'evaluation.hooks', 'captures nothing in an evaluation',
     {'evaluation.hooks': []}),
    ('warning', custom({'type': 'FixedLrUpdaterHook'}), FIRST, 'both set the lr', {'lr_config': None}),
    ('warning', {**SEVERAL, **custom({'type': 'FixedLrUpdaterHook'})}, FIRST, 'both set the lr of first:',
     custom({'type': 'FixedLrUpdaterHook', 'optimizer': 'second'})),
]  # fmt: skip


@pytest.mark.parametrize('level, wrong, key, words, right', CASES)
def test_wrong_and_right(level, wrong, key, words, right, tmp_path):
    assert told(plan(tmp_path, wrong), level, key, words), said(plan(tmp_path, wrong))
    assert said(plan(tmp_path, wrong, right)) == []


def test_a_val_point_that_an_evaluation_cannot_call_is_told(tmp_path):
    """Also of a hook that is called elsewhere; but not where nothing is evaluated."""
    of = plan(tmp_path, custom('PlanBoth'))
    assert said(of) == []
    evaluation = next(each for each in of.hooks if isinstance(each, EvalHook))
    evaluation.dataloader = DataLoader(Judged(6), batch_size=2)
    text = 'PlanBoth.after_val_iter: never called, since Judged.evaluate gets all predictions at once'
    assert told(of, 'warning', FIRST, text)
    assert told(of, 'warning', FIRST, 'Use after_evaluate or the ring around_val, or add')
    evaluation.dataloader = DataLoader(Noisy(6), batch_size=2)
    evaluation.calls_registered = False  # as one that is built in Python
    assert told(of, 'warning', FIRST, 'Give it the hook: EvalHook(…, hooks=[…])')
    evaluation.hooks[:] = [each for each in of.hooks if type(each).__name__ == 'PlanBoth']
    assert said(of) == []
    assert said(plan(tmp_path, {'evaluation': None, 'checkpoint_config.interval': 1}, custom('PlanBoth'))) == []


def test_a_runner_of_the_users_own_may_call_anything(tmp_path):
    class Own(EpochBasedRunner):
        """Calls ``helper`` and ``on_train_epoch_end`` somewhere."""

    of = plan(tmp_path, custom('PlanDeaf', 'PlanLightning'))
    runner = Own(of.model, optimizer=of.runner.optimizer, max_epochs=3)
    for each in of.hooks:
        del each.priority
        runner.register_hook(each)
    assert said(Plan(of.cfg, runner, of.loaders, of.workflow)) == []


@pytest.mark.parametrize(
    'theirs, ours',
    [
        ('on_train_batch_end', 'after_train_iter'),
        ('on_validation_epoch_start', 'before_val_epoch'),
        ('on_validation_end', 'after_evaluate'),
        ('before_test_iter', 'before_val_iter'),
        ('on_fit_start', 'before_run'),
        ('on_train_begin', 'before_run'),
        ('on_epoch_end', 'after_epoch'),
        ('on_step_end', 'after_train_iter'),
    ],
)
def test_points_of_other_libraries(theirs, ours):
    assert list(_foreign(type('Theirs', (Hook,), {theirs: listens}))) == [(theirs, ours)]


def test_foreign_names_lead_to_methods_that_are_called():
    assert not {name for name in FOREIGN if name in CALLED}
    assert all(meant in CALLED or hasattr(Hook, meant) for meant in FOREIGN.values())
    assert set(RINGS) <= set(CALLED)


@pytest.mark.parametrize('name', ['EmptyCacheHook', 'DistSamplerSeedHook', 'SyncBuffersHook', 'NonFiniteHook'])
@pytest.mark.parametrize('runner', [{}, BY_ITER])
def test_hooks_of_ours_listen_in_each_runner(name, runner, tmp_path):
    assert said(plan(tmp_path, runner, custom(name))) == []
