"""How hooks get into a runner."""

import pytest
from support import Recorder, Tiny, tiny_runner

from runnerkit.hooks import HOOKS, CheckpointHook, Hook, IterTimerHook, OptimizerHook, TextLoggerHook
from runnerkit.runner import EpochBasedRunner

TRAINING = {
    'lr_config': {'policy': 'step', 'step': [2]},
    'momentum_config': {'policy': 'step', 'step': [2]},
    'optimizer_config': {'grad_clip': None},
    'checkpoint_config': {'interval': 1},
    'log_config': {'interval': 7, 'hooks': [{'type': 'TextLoggerHook'}]},
    'custom_hooks_config': [{'type': 'IterTimerHook', 'priority': 'HIGHEST'}],
}


@pytest.mark.parametrize('kind, by_epoch', [('epoch', True), ('iter', False)])
def test_the_standard_hooks_their_order_and_unit(kind, by_epoch, tmp_path):
    import copy

    given = copy.deepcopy(TRAINING)
    runner = tiny_runner(kind, work_dir=tmp_path, max_epochs=1)
    runner.register_training_hooks(**given)
    assert given == TRAINING
    assert [(type(hook).__name__, hook.priority) for hook in runner.hooks] == [
        ('IterTimerHook', 0),
        ('StepLrUpdaterHook', 10),
        ('StepMomentumUpdaterHook', 30),
        ('OptimizerHook', 40),
        ('CheckpointHook', 50),
        ('IterTimerHook', 70),
        ('TextLoggerHook', 90),
    ]
    units = {hook.by_epoch for hook in runner.hooks if hasattr(hook, 'by_epoch')}
    assert units == {by_epoch}
    assert runner.hooks[-1].interval == 7
    assert 'after_train_iter:' in runner.get_hook_info()


def test_none_leaves_a_hook_out_and_built_hooks_are_taken():
    runner = tiny_runner(max_epochs=1)
    hooks = OptimizerHook(), CheckpointHook(), TextLoggerHook()
    runner.register_training_hooks(None, hooks[0], hooks[1], {'interval': 5, 'hooks': [hooks[2]]}, timer_config=None)
    assert list(runner.hooks) == list(hooks)


def test_types_may_be_named_in_the_standard_configs():
    runner = tiny_runner(max_epochs=1)
    runner.register_optimizer_hook({'type': 'OptimizerHook', 'cumulative_iters': 2})
    runner.register_lr_hook({'type': 'FixedLrUpdaterHook'})
    runner.register_checkpoint_hook(None)
    runner.register_logger_hooks(None)
    runner.register_custom_hooks(None)
    runner.register_custom_hooks(IterTimerHook())
    runner.register_custom_hooks({'type': 'ClosureHook', 'fn_name': 'after_run', 'fn': print})
    assert [type(hook).__name__ for hook in runner.hooks] == [
        'FixedLrUpdaterHook',
        'OptimizerHook',
        'IterTimerHook',
        'ClosureHook',
    ]
    assert runner.hooks[1].cumulative_iters == 2


def test_custom_hooks_from_config_with_priority():
    @HOOKS.register_module(force=True)
    class Mine(Hook):
        def __init__(self, a):
            self.a = a

    cfg = {'type': 'Mine', 'a': 3, 'priority': 'VERY_LOW'}
    runner = tiny_runner(max_epochs=1)
    runner.register_hook_from_cfg(cfg)
    assert (runner.hooks[0].a, runner.hooks[0].priority) == (3, 90)
    assert cfg == {'type': 'Mine', 'a': 3, 'priority': 'VERY_LOW'}


def test_wrong_hooks_are_refused():
    runner = EpochBasedRunner(Tiny(), max_epochs=1)
    with pytest.raises(TypeError, match='hook must be an instance of runnerkit.hooks.Hook'):
        runner.register_hook('IterTimerHook')
    with pytest.raises(TypeError, match='a hook must be a Hook or a dict'):
        runner.register_custom_hooks(['IterTimerHook'])
    with pytest.raises(AssertionError, match='the optimizer hook must be a Hook or a dict of its arguments, but got 3'):
        runner.register_optimizer_hook(3)
    hook = Recorder()
    runner.register_hook(hook)
    with pytest.raises(ValueError, match='"priority" is a reserved attribute for hooks, but Recorder has one'):
        runner.register_hook(hook)
    with pytest.raises(KeyError, match='there is no priority named'):
        runner.register_hook(Recorder(), 'URGENT')
    with pytest.raises(ValueError, match="Did you mean 'after_train_iter'"):
        runner.register_hook(type('Typo', (Hook,), {'after_train_itr': lambda self, runner: None})())
    with pytest.raises(KeyError, match='EMAHok is not in the hook registry'):
        runner.register_hook_from_cfg({'type': 'EMAHok'})
    with pytest.raises(TypeError, match='momentumm'):
        runner.register_hook_from_cfg({'type': 'EMAHook', 'momentumm': 0.1})
