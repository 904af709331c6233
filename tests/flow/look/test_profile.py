"""The profile of a training: which iterations it is of, and which hooks it keeps to itself."""

import json
import logging

import pytest
from support import Recorder, loader, tiny_runner

from runnerkit.flow import Context
from runnerkit.flow.look.profile import TRACED, Profile, keep_inside
from runnerkit.hooks import (
    CheckpointHook,
    EvalHook,
    Hook,
    OptimizerHook,
    ProfilerHook,
    TensorboardLoggerHook,
    TextLoggerHook,
)
from runnerkit.hooks.logger.tracker import TrackerHook


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
    assert (stage.done, stage.measured, stage.traced) == (9, 6, 0)
    assert (runner.completed_iters, str(runner.outcome)) == (9, 'stopped: the profile is complete')
    found = counts(stage)
    assert {name: found[name] for name in ('data', 'forward', 'backward', 'update', 'engine')} == dict.fromkeys(
        ('data', 'forward', 'backward', 'update', 'engine'), 6
    )
    assert found['Recorder.before_train_iter'] == 6
    assert found['Recorder.after_train_epoch'] == 1
    assert len(recorder.heard) > 6


def test_the_trace_is_of_further_iterations(tmp_path):
    path = tmp_path / 'trace.json'
    _, stage = profiled(tmp_path, iters=2, warmup=1, trace=str(path))
    assert (stage.done, stage.measured, stage.traced) == (3 + TRACED, 2, TRACED)
    assert counts(stage)['forward'] == 2
    events = json.loads(path.read_text())['traceEvents']
    named = [event['name'] for event in events if event.get('cat') == 'user_annotation']
    for part in ('data', 'forward', 'backward', 'update', 'OptimizerHook.after_train_iter', 'engine'):
        assert named.count(part) == TRACED, part
    assert any(event.get('name') == 'aten::addmm' for event in events)


@pytest.mark.parametrize('iters, measured, traced', [(2, 2, 2), (4, 4, 0), (9, 4, 0)])
def test_a_shorter_training_is_measured_to_its_end(tmp_path, iters, measured, traced):
    path = tmp_path / 'trace.json'
    runner, stage = profiled(tmp_path, max_epochs=1, iters=iters, warmup=1, trace=str(path))
    assert runner.outcome.kind == 'completed'
    assert (stage.done, stage.measured, stage.traced, path.exists()) == (5, measured, traced, traced > 0)


def test_a_training_that_fails_in_the_trace_ends_the_profiler(tmp_path):
    class Fails(Hook):
        def before_train_iter(self, runner):
            if runner.iter == 4:
                raise ZeroDivisionError('a bug of the user')

    with pytest.raises(ZeroDivisionError):
        profiled(tmp_path, hooks=[Fails()], iters=2, warmup=1, trace=str(tmp_path / 'trace.json'))
    profiled(tmp_path / 'again', iters=2, warmup=1, trace=str(tmp_path / 'again.json'))
    assert (tmp_path / 'again.json').exists()


def test_nothing_is_written_elsewhere(tmp_path, caplog):
    class Tracker(TrackerHook):
        def __init__(self):
            super().__init__()

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
