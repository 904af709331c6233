"""Whether a run ends at the next boundary. Signals: `tests/distributed/test_signals.py`."""

import os
import signal
from contextlib import contextmanager

import pytest
from support import At, Recorder, loader, tiny_runner

from runnerkit.hooks import CheckpointHook, Hook


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
@pytest.mark.parametrize(
    'ask', [lambda runner: runner.stop('enough'), lambda runner: os.kill(os.getpid(), signal.SIGTERM)]
)
def test_the_run_ends_after_the_running_iteration(kind, ask):
    runner, recorder = tiny_runner(kind, max_iters=9), Recorder()
    runner.register_hook(At(3, ask))
    runner.register_hook(recorder)
    runner.run([loader(12)], [('train', 1)])
    assert (runner.iter, runner.outcome.kind) == (4, 'stopped')
    assert recorder.names().count('after_train_iter') == 4


def test_a_signal_on_leaving_the_rings_of_an_iteration_ends_the_run_before_the_next_one():
    class Ring(Hook):
        @contextmanager
        def around_iter(self, runner):
            yield
            if runner.completed_iters == 3:
                os.kill(os.getpid(), signal.SIGTERM)

    runner, recorder = tiny_runner('iter', max_iters=9), Recorder()
    runner.register_hook(Ring())
    runner.register_hook(recorder)
    runner.run([loader(12)], [('train', 1)])
    assert (runner.iter, str(runner.outcome)) == (3, 'stopped: SIGTERM')
    assert recorder.names().count('before_train_iter') == 3


def test_what_saves_is_called_before_the_run_decides(tmp_path):
    runner = tiny_runner(max_iters=9, work_dir=tmp_path)
    runner.register_hook(At(3, lambda runner: runner.stop('enough')))
    runner.register_hook(CheckpointHook(interval=4, by_epoch=False, save_last=False))
    runner.run([loader(12)], [('train', 1)])
    assert (tmp_path / 'iter_4.pth').is_file()
