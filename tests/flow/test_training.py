"""The stage that trains."""

import pytest
from support import Counts, weights

from runnerkit.config import Config
from runnerkit.data import IterLoader
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
