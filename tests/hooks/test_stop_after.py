"""Ending early, as a part of the whole run."""

import pytest
from support import loader, tiny_runner

from runnerkit.checkpoint import find_latest_checkpoint
from runnerkit.hooks import StopAfterHook


def run(kind, number, work_dir, resumes=False):
    runner = tiny_runner(kind, work_dir=work_dir, max_epochs=4)
    runner.register_training_hooks({'policy': 'poly', 'power': 1.0}, {}, {'interval': 1, 'by_epoch': kind == 'epoch'})
    if number is not None:
        runner.register_hook(StopAfterHook(number))
    if resumes:
        runner.resume(find_latest_checkpoint(str(work_dir)))
    runner.run([loader(20)], [('train', 1)])
    return runner


@pytest.mark.parametrize(('kind', 'number', 'iters'), [('epoch', 2, 10), ('iter', 7, 7)])
def test_it_stops_with_the_schedule_of_the_whole_run(kind, number, iters, tmp_path):
    whole = run(kind, None, tmp_path / 'whole')
    stopped = run(kind, number, tmp_path / 'part')
    assert stopped.completed_iters == iters
    assert stopped.outcome.kind == 'stopped'
    assert stopped.model.losses == whole.model.losses[:iters]
    resumed = run(kind, None, tmp_path / 'part', resumes=True)
    assert resumed.model.losses == whole.model.losses[iters:]


def test_wrong_numbers():
    for number in (0, -1, 2.5, True):
        with pytest.raises((TypeError, ValueError)):
            StopAfterHook(number)
