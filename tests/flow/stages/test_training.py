"""The stage that trains."""

import itertools
import json
import random

import numpy as np
import pytest
import torch
from support import Counts, Measured, weights

from runnerkit.compat.vega.callbacks import Callback
from runnerkit.config import Config
from runnerkit.data import IterLoader
from runnerkit.flow import Flow, Options, Runner, RunnerBase
from runnerkit.hooks import Hook, IterTimerHook, LoggerHook
from runnerkit.hooks.hook import VAL_POINTS, Outcome
from runnerkit.hooks.logger.history import HistoryHook

CONFIG = {
    'model': {'type': 'support.Tiny'},
    'data': {'samples_per_gpu': 4, 'train': {'type': 'support.Noisy', 'length': 8}},
    'optimizer': {'type': 'SGD', 'lr': 0.1},
    'runner': {'type': 'EpochBasedRunner', 'max_epochs': 2},
    'seed': 3,
}


def flow(work_dir, runner=None, cfg=CONFIG, **settings):
    stages = {} if runner is None else {'runner': runner}
    options = Options(work_dir=str(work_dir), device='cpu', **settings.pop('options', {}))
    return Flow(Config(cfg), options, stages=stages, **settings)


def test_the_outcome_and_the_config_are_published(tmp_path):
    context = flow(tmp_path).run()
    assert context.outcome is context.runner.outcome
    assert context.outcome.kind == 'completed'
    assert Config.fromfile(str(tmp_path / 'config.py')).seed == 3


def test_a_loop_of_ones_own_gets_runner_hooks_and_resume_ready(tmp_path):
    class Own(RunnerBase):
        def run(self, context):
            assert {type(hook).__name__ for hook in context.runner.hooks} >= {'OptimizerHook', 'CheckpointHook'}
            assert context.runner.completed_epochs == (context.resume_from is not None)
            context.runner.call_hook('before_run')
            context.runner.train(context.loaders[0])

    context = flow(tmp_path, Own).run()
    assert (context.outcome, context.runner.epoch) == (Outcome('completed'), 1)
    context = flow(tmp_path, Own, options={'resume_from': str(tmp_path / 'epoch_1.pth')}).run()
    assert context.runner.epoch == 2


def test_a_loop_of_ones_own_that_fails(tmp_path):
    class Own(RunnerBase):
        def run(self, context):
            raise ValueError('boom')

    failing = flow(tmp_path, Own)
    with pytest.raises(ValueError, match='boom'):
        failing.run()
    assert failing.context.outcome.kind == 'failed'


def test_a_runner_stage_must_run(tmp_path):
    class Nothing(RunnerBase):
        def begin(self, context):
            pass

    with pytest.raises(NotImplementedError, match='Nothing must override run'):
        flow(tmp_path, Nothing).run()


def test_the_resume_happens_when_the_hooks_are_there(tmp_path):
    straight, resumed = Counts(), Counts()
    expected = weights(flow(tmp_path, hooks=[(straight, 'LOW')]).run().model)
    again = {'options': {'resume_from': str(tmp_path / 'epoch_1.pth')}, 'hooks': [(resumed, 'LOW')]}
    assert weights(flow(tmp_path, **again).run().model).equal(expected)
    assert resumed.n == straight.n == 4


def test_a_checkpoint_that_cannot_be_resumed_is_met_with_the_line_that_names_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'x.pth').write_bytes(b'half')
    (tmp_path / 'cfg.py').write_text(f"x = 1\nresume_from = '{tmp_path / 'x.pth'}'\n")
    context = flow(tmp_path / 'run').context
    context.cfg = Config.fromfile('cfg.py')
    context.resume_from = context.cfg.resume_from

    class Fails:
        def resume(self, path):
            raise FileNotFoundError(f'there is no checkpoint {path}')

    context.runner = Fails()
    with pytest.raises(FileNotFoundError, match=r' \(cfg.py:2\)$'):
        Runner(context).resume(context)


class OwnLoop(RunnerBase):
    """As in PaddleRec's example: nothing but one epoch after the other."""

    def run(self, context):
        while context.runner.epoch < context.runner.max_epochs and context.runner.outcome is None:
            context.runner.train(context.loaders[0])
            if context.runner.epoch == context.own.get('until'):
                context.runner.stop('enough')
                context.runner.train(context.loaders[0])  # does nothing any more
                break


FULL = {
    **CONFIG,
    'lr_config': {'policy': 'step', 'step': [1]},
    'optimizer_config': {'amp': 'bf16'},
    'custom_hooks': [{'type': 'EMAHook', 'momentum': 0.3}],
    'data': {**CONFIG['data'], 'val': {'type': 'support.Noisy', 'length': 6}},
    'evaluation': {'interval': 1},
}


def test_a_loop_of_ones_own_is_a_run_in_all(tmp_path):
    """Hooks are entered and left; the schedule, AMP and averages count; it stops where it is asked to, and resumes."""
    usual, own = (flow(tmp_path / name, stage, FULL).run() for name, stage in (('usual', None), ('own', OwnLoop)))
    assert weights(own.model).equal(weights(usual.model))
    assert own.runner.current_lr() == usual.runner.current_lr() == [pytest.approx(0.01)]
    assert own.outcome is own.runner.outcome
    assert own.outcome == Outcome('completed')
    stopped = flow(tmp_path / 'cut', OwnLoop, FULL)
    stopped.context['until'] = 1
    assert str(stopped.run().outcome) == 'stopped: enough'
    resumed = flow(tmp_path / 'cut', OwnLoop, FULL, options={'auto_resume': True}).run()
    assert weights(resumed.model).equal(weights(usual.model))
    assert resumed.runner.scores == usual.runner.scores


def test_a_loop_of_ones_own_that_fails_is_left(tmp_path):
    class Fails(Hook):
        def after_train_epoch(self, runner):
            raise ValueError('boom')

        def after_run(self, runner):
            self.outcome = runner.outcome

    hook = Fails()
    failing = flow(tmp_path, OwnLoop, hooks=[(hook, 'LOW')])
    with pytest.raises(ValueError, match='boom'):
        failing.run()
    assert hook.outcome.kind == failing.context.outcome.kind == 'failed'


def test_a_loop_of_ones_own_over_iterations(tmp_path):
    class Iterations(RunnerBase):
        def run(self, context):
            loader = IterLoader(context.loaders[0])
            while context.runner.iter < context.runner.max_iters:
                context.runner.train(loader)

    cfg = {**FULL, 'runner': {'type': 'IterBasedRunner', 'max_iters': 4}, 'evaluation': {'interval': 2}}
    usual, own = (flow(tmp_path / name, stage, cfg).run() for name, stage in (('usual', None), ('own', Iterations)))
    assert weights(own.model).equal(weights(usual.model))
    assert own.runner.scores == usual.runner.scores


EVALUATED = {
    **CONFIG,
    'model': {'type': 'support.Measured'},
    'data': {**CONFIG['data'], 'val': {'type': 'support.Noisy', 'length': 6}},
    'evaluation': {'interval': 1},
}
BY_ITER = {'runner': {'type': 'IterBasedRunner', 'max_iters': 4}, 'evaluation': {'interval': 2}}


class Hears(Hook):
    """Overrides two val points itself, and falls back at the others; the model is in evaluation mode there."""

    def __init__(self):
        self.heard = []

    def before_epoch(self, runner):
        self.heard.append(f'{runner.mode} epoch')

    def after_iter(self, runner):
        self.heard.append(f'{runner.mode} iter')

    def after_val_epoch(self, runner):
        assert not runner.model.training
        assert set(runner.log_buffer.output) >= {'loss', 'error'}
        self.heard.append('after_val_epoch')

    def before_val_iter(self, runner):
        self.heard.append(f'before_val_iter {len(runner.data_batch[0])}')


EVALUATION = ['before_val_iter 4', 'before_val_iter 2', 'after_val_epoch']


@pytest.mark.parametrize('by_iter', [False, True])
def test_registered_hooks_hear_an_evaluation_at_the_val_points_that_they_override(by_iter, tmp_path, caplog):
    hook = Hears()
    changes = {'custom_hooks': [hook], 'log_config': {'interval': 1, 'hooks': [{'type': 'TextLoggerHook'}]}}
    context = flow(tmp_path, cfg={**EVALUATED, **(BY_ITER if by_iter else {}), **changes}).run()
    epochs = [] if by_iter else ['train epoch']
    assert hook.heard == ['None epoch'] * by_iter + [*epochs, *['train iter'] * 2, *EVALUATION] * 2
    lines = [json.loads(line) for line in next(tmp_path.glob('*.log.json')).read_text().splitlines()[1:]]
    modes = [line['mode'] for line in lines]
    assert modes == ['train', 'train', 'val'] * 2  # each once
    assert not context.findings
    assert 'never called' not in caplog.text


def test_every_built_in_hook_is_called_and_logs_once(tmp_path):
    """Also where it has val points: loggers, the bar, Vega's callbacks."""
    history, vega = HistoryHook(), Calls()
    mine = {'type': Mine, 'priority': 'VERY_LOW'}
    Mine.lines.clear()
    hooks = [mine, {'type': 'VegaCallbacks', 'callbacks': [vega], 'priority': 'LOW'}, IterTimerHook()]
    logging = {'interval': 1, 'hooks': [{'type': 'TextLoggerHook'}, history]}
    flow(tmp_path, cfg={**EVALUATED, 'custom_hooks': hooks, 'timer_config': None, 'log_config': logging}).run()
    assert [record['mode'] for record in history.records] == ['train', 'train', 'val'] * 2
    assert Mine.lines == ['train', 'train', 'val'] * 2
    assert vega.heard == ['before', 'after'] * 4


class Mine(LoggerHook):
    """A logger of the user's own with a val point, which logs as all loggers do."""

    lines = []

    def __init__(self):
        super().__init__(interval=1)

    def log(self, runner):
        self.lines.append(self.get_mode(runner))

    def after_val_epoch(self, runner):
        super().after_val_epoch(runner)


class Calls(Callback):
    def __init__(self):
        super().__init__()
        self.heard = []

    def before_valid_step(self, batch_index, logs=None):
        self.heard.append('before')

    def after_valid_step(self, batch_index, logs=None):
        self.heard.append('after')


def test_with_a_val_entry_and_an_evaluation_each_calls_what_is_its_own(tmp_path):
    hook = Hears()
    flow(tmp_path, cfg={**EVALUATED, 'workflow': [('train', 2), ('val', 1)], 'custom_hooks': [hook]}).run()
    training = ['train epoch', *['train iter'] * 2, *EVALUATION]
    entry = ['val epoch', 'before_val_iter 4', 'val iter', 'before_val_iter 2', 'val iter', 'after_val_epoch']
    assert hook.heard == [*training * 2, *entry]


def at(point, text):
    """The hooks that a dry run lists at ``point``."""
    lines = text.partition(f'\n{point}:\n')[2].splitlines()
    return [line.split()[-1] for line in itertools.takewhile(lambda line: line.startswith('  ('), lines)]


def test_a_dry_run_lists_whom_an_evaluation_calls(tmp_path, capsys):
    def listed(**changes):
        options = {'dry_run': True}
        flow(tmp_path / 'run', cfg={**EVALUATED, 'custom_hooks': [Hears()], **changes}, options=options).run()
        text = capsys.readouterr().out
        return {point: at(point, text) for point in VAL_POINTS if at(point, text)}

    assert listed() == {'after_val_epoch': ['Hears'], 'before_val_iter': ['Hears']}
    assert listed(custom_hooks=[]) == {}
    assert listed(custom_hooks=[], evaluation={'hooks': [Hears()]}) == dict.fromkeys(VAL_POINTS, ['Hears'])
    assert listed(evaluation=None) == {}
    everybody = listed(workflow=[('train', 1), ('val', 1)])
    assert everybody['after_val_epoch'] == ['Hears', 'TextLoggerHook']
    assert {'Hears', 'IterTimerHook'} <= set(everybody['before_val_epoch'])


class Kept(Measured):
    """Draws, too, when it is evaluated."""

    def val_step(self, data, optimizer=None):
        torch.rand(3), random.random(), np.random.rand()
        return super().val_step(data)


PLAIN = {'seeded': False}
PLAIN_DATA = {
    'samples_per_gpu': 4,
    'train': {'type': 'support.Noisy', 'length': 8},
    'val': {'type': 'support.Noisy', 'length': 6},
    'train_dataloader': PLAIN,
    'val_dataloader': {**PLAIN, 'shuffle': True},
}


@pytest.mark.parametrize('changes', [{'evaluation': {'interval': 1}}, {'workflow': [('train', 1), ('val', 1)]}])
@pytest.mark.parametrize('runner', [CONFIG['runner'], BY_ITER['runner']])
def test_an_evaluation_does_not_change_the_training(changes, runner, tmp_path):
    """Though its samples and its model draw from the generators of the process."""
    base = {**CONFIG, 'model': {'type': f'{__file__}:Kept'}, 'data': PLAIN_DATA, 'runner': runner}
    alone = flow(tmp_path / 'alone', cfg={**base, 'evaluation': None}).run()
    evaluated = flow(tmp_path / 'evaluated', cfg={'evaluation': None, **base, **changes}).run()
    assert 'error' in evaluated.runner.scores
    assert torch.equal(weights(alone.model), weights(evaluated.model))
