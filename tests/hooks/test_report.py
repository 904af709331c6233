"""What a trial tells its study, and how it obeys."""

import pytest
from support import Measured, loader, tiny_runner

from runnerkit.checkpoint import find_latest_checkpoint
from runnerkit.hooks import CheckpointHook, EvalHook, Hook, OptimizerHook
from runnerkit.hooks.report import PRUNED, ReportHook


def trial(work_dir, hook, kind='epoch'):
    runner = tiny_runner(kind, model=Measured(), work_dir=work_dir, max_epochs=4)
    runner.register_hook(OptimizerHook())
    options = {} if kind == 'epoch' else {'by_epoch': False, 'interval': 5}
    runner.register_hook(EvalHook(loader(8, shuffle=False), **options))
    runner.register_hook(CheckpointHook(interval=1))
    runner.register_hook(hook)
    return runner


@pytest.mark.parametrize(('kind', 'steps'), [('epoch', [1, 2, 3, 4]), ('iter', [5, 10, 15, 20])])
def test_each_evaluation_is_sent(kind, steps, tmp_path):
    said = []
    runner = trial(tmp_path, ReportHook(lambda *each: said.append(each) or False, ('error',)), kind)
    runner.run([loader(20)], [('train', 1)])
    assert [step for step, _ in said] == steps
    assert said[-1][1] == {name: score.value for name, score in runner.scores.items()}


def test_evaluations_inside_of_an_epoch_are_not_sent(tmp_path):
    said = []
    runner = tiny_runner('epoch', model=Measured(), work_dir=tmp_path, max_epochs=2)
    runner.register_hook(OptimizerHook())
    runner.register_hook(EvalHook(loader(8, shuffle=False), by_epoch=False, interval=2))
    runner.register_hook(EvalHook(loader(8, shuffle=False)))
    runner.register_hook(ReportHook(lambda *each: said.append(each) or False, ('error',)))
    runner.run([loader(20)], [('train', 1)])
    assert [step for step, _ in said] == [1, 2]


def test_a_pruned_run_stops_there(tmp_path):
    runner = trial(tmp_path, ReportHook(lambda step, scores: step == 2, ('error',)))
    runner.run([loader(20)], [('train', 1)])
    assert runner.completed_epochs == 2
    assert (runner.outcome.kind, runner.outcome.reason) == ('stopped', PRUNED)


def test_evaluations_without_the_objective_are_not_sent(tmp_path):
    said = []
    runner = trial(tmp_path, ReportHook(lambda *each: said.append(each) or False, ('another',)))
    runner.run([loader(20)], [('train', 1)])
    assert said == []


def test_a_resumed_run_asks_again_before_it_goes_on(tmp_path):
    class Dies(Hook):
        def before_train_iter(self, runner):
            if runner.completed_iters == 10:
                raise KeyboardInterrupt

    first = trial(tmp_path, ReportHook(lambda step, scores: False, ('error',)))
    first.register_hook(Dies())
    with pytest.raises(KeyboardInterrupt):
        first.run([loader(20)], [('train', 1)])
    said = []
    resumed = trial(tmp_path, ReportHook(lambda *each: said.append(each) or True, ('error',)))
    resumed.resume(find_latest_checkpoint(str(tmp_path)))
    resumed.run([loader(20)], [('train', 1)])
    assert [step for step, _ in said] == [2]
    assert resumed.completed_iters == 10
    assert resumed.outcome.reason == PRUNED
