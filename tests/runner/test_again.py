"""The same runner, run again, goes on as if it had not stopped."""

import pytest
import torch
from support import Measured, Noisy, loader, tiny_runner, weights
from torch.utils.data import DataLoader

from runnerkit.hooks import EvalHook, Hook, OptimizerHook


class Stop(Hook):
    def __init__(self, at):
        self.at = at

    def after_train_iter(self, runner):
        if runner.iter + 1 == self.at:
            runner.stop('pause')


def shuffled():
    return DataLoader(Noisy(20), 4, shuffle=True, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
@pytest.mark.parametrize('build', [loader, shuffled], ids=['ours', "torch's"])
@pytest.mark.parametrize('at', [2, 5, 7])
def test_a_stopped_runner_goes_on(kind, build, at):
    """Inside a pass, at its end, and inside a cycle of accumulated gradients."""

    def run(*hooks):
        runner = tiny_runner(kind, max_iters=12)
        runner.register_hook(OptimizerHook(cumulative_iters=3))
        for hook in hooks:
            runner.register_hook(hook)
        given, workflow = [build(), loader(8)], [('train', 2), ('val', 1)]
        runner.run(given, workflow)
        if hooks:
            assert (runner.iter, runner.outcome.reason, runner.is_ending) == (at, 'pause', True)
            runner.run(given, workflow)
        assert (runner.iter, runner.outcome.kind, runner.is_ending) == (12, 'completed', False)
        return runner

    whole, again = run(), run(Stop(at))
    assert torch.equal(weights(again.model), weights(whole.model))
    assert again.model.losses == whole.model.losses
    assert (again.progress, again.epoch) == (whole.progress, whole.epoch)


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_a_limit_that_is_raised_later(kind):
    def run(*limits):
        runner = tiny_runner(kind, max_iters=limits[0])
        runner.register_hook(OptimizerHook())
        given = [shuffled()]
        for limit in limits:
            runner._max_iters = limit
            runner.run(given, [('train', 1)])
        return weights(runner.model)

    assert torch.equal(run(7, 13), run(13))


def test_the_optimizer_counts_steps_once():
    runner = tiny_runner(max_epochs=1)
    runner.register_hook(OptimizerHook())
    for limit in (1, 2, 3):
        runner._max_epochs = limit
        runner.run([loader()], [('train', 1)])
    assert len(runner.optimizer._optimizer_step_post_hooks) == 1
    runner.configure_update(cumulative_iters=2)
    assert len(runner.optimizer._optimizer_step_post_hooks) == 1


@pytest.mark.parametrize('build', [loader, shuffled], ids=['ours', "torch's"])
def test_with_loaders_built_anew_the_open_epoch_goes_on_with_its_next_batch(build, caplog):
    """What was trained on is not trained on again; where the order is not ours to know, that is told."""
    runner = tiny_runner(max_epochs=2)
    runner.register_hook(Stop(at=3))
    runner.run([build(20) if build is loader else build()], [('train', 1)])
    runner.run([build(20) if build is loader else build()], [('train', 1)])
    assert (runner.iter, runner.epoch) == (10, 2)
    assert ('continues after 3 batches' in caplog.text) == (build is shuffled)


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
@pytest.mark.parametrize('build', [loader, shuffled], ids=['ours', "torch's"])
def test_a_batch_at_which_a_run_failed_comes_again(kind, build):
    class Fails(Hook):
        failed = False

        def before_train_iter(self, runner):
            if runner.iter == 3 and not self.failed:
                self.failed = True
                raise OSError('no memory')

    def run(*hooks):
        runner = tiny_runner(kind, max_iters=7)
        runner.register_hook(OptimizerHook())
        for hook in hooks:
            runner.register_hook(hook)
        given = [build()]
        if hooks:
            with pytest.raises(OSError, match='no memory'):
                runner.run(given, [('train', 1)])
        runner.run(given, [('train', 1)])
        return runner

    whole, again = run(), run(Fails())
    assert torch.equal(weights(again.model), weights(whole.model))
    assert again.model.losses == whole.model.losses


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
@pytest.mark.parametrize('by', ['hook', 'entry'])
def test_a_run_that_was_saved_after_its_end_is_continued_by_a_longer_one(kind, by, tmp_path):
    """Also the order of validation data, which comes from a generator of its own."""

    def run(epochs, checkpoint=None):
        torch.manual_seed(0)
        limit = {'max_epochs': epochs} if kind == 'epoch' else {'max_iters': 5 * epochs}
        runner, scores = tiny_runner(kind, model=Measured(), **limit), []
        runner.register_hook(OptimizerHook())
        unit, batches = (1, 1) if kind == 'epoch' else (5, 2)
        given, workflow = [shuffled()], [('train', unit)]
        if by == 'hook':
            runner.register_hook(EvalHook(shuffled(), interval=unit, by_epoch=kind == 'epoch'))
        else:
            given, workflow = [*given, shuffled()], [*workflow, ('val', batches)]
        runner.register_hook(Notes(scores))
        if checkpoint is not None:
            runner.resume(checkpoint)
        runner.run(given, workflow)
        return runner, scores

    whole, expected = run(4)
    first, before = run(2)
    longer, after = run(4, first.save_checkpoint(str(tmp_path)))
    assert before + after == expected
    assert torch.equal(weights(longer.model), weights(whole.model))


class Notes(Hook):
    """Keeps the scores of each evaluation."""

    def __init__(self, scores):
        self.scores = scores

    def after_evaluate(self, runner, scores):
        self.scores.append(scores)
