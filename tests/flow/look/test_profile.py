"""The profile of a training: which iterations it is of, and which hooks it keeps to itself."""

import logging

import pytest
from support import Recorder, loader, tiny_runner

from runnerkit.flow import Context
from runnerkit.flow.look.profile import Profile, keep_inside
from runnerkit.hooks import (
    CheckpointHook,
    EvalHook,
    OptimizerHook,
    ProfilerHook,
    TensorboardLoggerHook,
    TextLoggerHook,
)
from runnerkit.hooks.logger.trackers import TrackerHook


def profiled(work_dir, max_epochs=9, hooks=(), **settings):
    runner = tiny_runner('epoch', work_dir=work_dir, max_epochs=max_epochs)
    for hook in [OptimizerHook(), *hooks]:
        runner.register_hook(hook)
    context = Context({}, runner=runner, loaders=[loader(20)], logger=logging.getLogger('runnerkit'))
    stage = Profile(context, **settings)
    assert context['profile'] is stage
    try:
        stage.run(context)
    finally:
        assert stage.watch.current is None
    return runner, stage


def counts(stage):
    return {part.name: part.count for part in stage.watch.parts()}


def test_warm_up_measure_and_end(tmp_path):
    recorder = Recorder()
    runner, stage = profiled(tmp_path, hooks=[recorder], iters=6, warmup=3)
    assert (stage.done, stage.measured) == (9, 6)
    assert (runner.completed_iters, str(runner.outcome)) == (9, 'stopped: the profile is complete')
    found = counts(stage)
    assert {name: found[name] for name in ('data', 'forward', 'backward', 'update', 'engine')} == dict.fromkeys(
        ('data', 'forward', 'backward', 'update', 'engine'), 6
    )
    assert found['Recorder.before_train_iter'] == 6
    assert found['Recorder.after_train_epoch'] == 1
    assert len(recorder.heard) > 6


@pytest.mark.parametrize('iters', [4, 9])
def test_a_shorter_training_is_measured_to_its_end(tmp_path, iters):
    runner, stage = profiled(tmp_path, max_epochs=1, iters=iters, warmup=1)
    assert runner.outcome.reason == ('the profile is complete' if iters == 4 else None)
    assert (stage.done, stage.measured) == (5, 4)


def test_nothing_is_written_elsewhere(tmp_path, caplog):
    class Tracker(TrackerHook):
        def _send(self, tags, runner): ...

    elsewhere = str(tmp_path / 'elsewhere')
    runner = tiny_runner(work_dir=tmp_path / 'run', max_epochs=1)
    kept = [
        CheckpointHook(interval=1, out_dir=elsewhere, file_client_args={'backend': 'disk'}),
        EvalHook(loader(8), out_dir=elsewhere),
        TextLoggerHook(out_dir=elsewhere),
        TensorboardLoggerHook(log_dir=elsewhere),
    ]
    for hook in [*kept, Tracker(), ProfilerHook()]:
        runner.register_hook(hook)
    keep_inside(runner, runner.logger)
    assert list(runner.hooks) == kept
    assert [getattr(hook, 'out_dir', None) for hook in kept] == [None] * 4
    assert kept[0].file_client_args is None
    assert kept[3].log_dir is None
    assert not kept[0].save_last
