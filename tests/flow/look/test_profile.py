"""The profile of a training: which iterations it is of, and which hooks it keeps to itself."""

import logging
import re

import pytest
from support import loader, tiny_runner

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


def profiled(work_dir, max_epochs=9, **settings):
    """The runner and the table, of epochs of five iterations."""
    runner = tiny_runner('epoch', work_dir=work_dir, max_epochs=max_epochs)
    runner.register_hook(OptimizerHook())
    context = Context({}, runner=runner, loaders=[loader(20)], logger=logging.getLogger('runnerkit'))
    context.workflow = [('train', 1)]
    Profile(context, **settings).run(context)
    return runner, context['profile']


@pytest.mark.parametrize('max_epochs, iters, measured', [(9, 6, 6), (1, 4, 2), (1, 2, 2)])
def test_warm_up_measure_and_end(max_epochs, iters, measured, tmp_path):
    runner, table = profiled(tmp_path, max_epochs, iters=iters, warmup=3)
    assert (runner.completed_iters, str(runner.outcome)) == (3 + measured, 'stopped: the profile is complete')
    assert table.startswith(f'{measured} iterations after 3 for warming up\n')
    (steps,) = re.findall(r'ProfilerStep\*.* (\d+) *$', table, re.MULTILINE)
    assert int(steps) == measured
    assert 'Optimizer.step#SGD.step' in table


def test_a_training_that_ends_while_warming_up_is_refused(tmp_path):
    with pytest.raises(ValueError, match='the training ends after 5 iterations, within --warmup 5'):
        profiled(tmp_path, 1, iters=4, warmup=5)


def test_nothing_is_written_elsewhere(tmp_path):
    elsewhere = str(tmp_path / 'elsewhere')
    runner = tiny_runner(work_dir=tmp_path / 'run', max_epochs=1)
    kept = [
        CheckpointHook(interval=1, out_dir=elsewhere, file_client_args={'backend': 'disk'}),
        EvalHook(loader(8), out_dir=elsewhere),
        TextLoggerHook(out_dir=elsewhere),
    ]
    for hook in [*kept, TensorboardLoggerHook(log_dir=elsewhere), ProfilerHook()]:
        runner.register_hook(hook)
    keep_inside(runner)
    assert list(runner.hooks) == kept
    assert [hook.out_dir for hook in kept] == [None] * 3
    assert kept[0].file_client_args is None
    assert not kept[0].save_last
