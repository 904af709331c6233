"""The stage that trains."""

import pytest
from support import weights

from runnerkit.config import Config
from runnerkit.flow import Flow, Options, Runner, RunnerBase
from runnerkit.hooks import Hook
from runnerkit.hooks.hook import Outcome

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
    class Counts(Hook):
        def __init__(self):
            self.count = 0

        def after_train_iter(self, runner):
            self.count += 1

        def state_dict(self):
            return {'count': self.count}

        def load_state_dict(self, state):
            self.count = state['count']

    straight, resumed = Counts(), Counts()
    expected = weights(flow(tmp_path, hooks=[(straight, 'LOW')]).run().model)
    again = {'options': {'resume_from': str(tmp_path / 'epoch_1.pth')}, 'hooks': [(resumed, 'LOW')]}
    assert weights(flow(tmp_path, **again).run().model).equal(expected)
    assert resumed.count == straight.count == 4


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
