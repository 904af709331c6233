"""Going back to a checkpoint in the middle of a run, from wherever a hook is called."""

import json

import pytest
import torch
from support import loader, tiny_runner, weights
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from runnerkit.hooks import (
    CheckpointHook,
    EvalHook,
    Hook,
    LoggerHook,
    OptimizerHook,
    TensorboardLoggerHook,
    TextLoggerHook,
)


class Back(Hook):
    """Goes back once, when ``when(runner)`` says so at ``point``."""

    def __init__(self, point, at, checkpoint):
        self.at, self.checkpoint, self.heard = at, str(checkpoint), []
        self.gone = False
        setattr(self, point, self.react)

    def react(self, runner):
        self.heard.append(runner.iter)
        if runner.iter == self.at and not self.gone:
            self.gone = True
            runner.roll_back(self.checkpoint)


def run(kind, folder, hook=None, workflow=(('train', 1),), interval=3, hooks=()):
    limits = {'max_epochs': 3} if kind == 'epoch' else {'max_iters': 15}
    runner = tiny_runner(kind, work_dir=folder, **limits)
    runner.register_hook(OptimizerHook(), 'ABOVE_NORMAL')
    runner.register_hook(CheckpointHook(interval=interval, by_epoch=False))
    for each in (*hooks, *([] if hook is None else [hook])):
        runner.register_hook(each, 'VERY_LOW')
    runner.run([loader()] if len(workflow) == 1 else [loader(), loader(8)], list(workflow))
    return runner


POINTS = ['before_train_iter', 'after_forward', 'after_train_iter']


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
@pytest.mark.parametrize('point', [*POINTS, 'before_train_epoch', 'after_train_epoch', 'after_val_iter'])
def test_the_run_goes_on_from_there_as_if_it_had_not_been_further(kind, point, tmp_path):
    if kind == 'iter' and point.endswith('epoch'):
        pytest.skip('the iteration runner has no such points')
    workflow = [('train', 5 if kind == 'iter' else 1), ('val', 2 if kind == 'iter' else 1)]
    whole = run(kind, tmp_path / 'whole', workflow=workflow)
    at = {'after_train_epoch': 10, 'before_train_epoch': 10, 'after_val_iter': 10}.get(point, 7)
    back = run(kind, tmp_path / 'back', Back(point, at, tmp_path / 'back' / 'iter_3.pth'), workflow)
    assert back.hooks[-1].gone
    assert torch.equal(weights(whole.model), weights(back.model))
    assert back.outcome.kind == 'completed'
    assert (whole.epoch, whole.iter) == (back.epoch, back.iter)
    for number in (6, 9, 12, 15):
        one, other = (torch.load(tmp_path / name / f'iter_{number}.pth') for name in ('whole', 'back'))
        assert one['runnerkit']['progress'] == other['runnerkit']['progress']
        assert torch.equal(one['runnerkit']['ranks'][0]['rng']['torch'], other['runnerkit']['ranks'][0]['rng']['torch'])


def test_out_of_an_evaluation(tmp_path):
    class Early(EvalHook):
        gone = False

        def _do_evaluate(self, runner):
            if runner.iter == 7 and not self.gone:
                self.gone = True
                runner.roll_back(str(tmp_path / 'back' / 'iter_3.pth'))
            super()._do_evaluate(runner)

    def evaluation(kind):
        return kind(loader(8), by_epoch=False, interval=4, save_best='loss')

    whole = run('epoch', tmp_path / 'whole', hooks=[evaluation(EvalHook)])
    back = run('epoch', tmp_path / 'back', hooks=[evaluation(Early)])
    assert back.hooks[-1].gone
    assert torch.equal(weights(whole.model), weights(back.model))
    assert whole.meta['hook_msgs']['best_score'] == back.meta['hook_msgs']['best_score']


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_the_logs_have_each_line_once_and_the_others_aside(kind, tmp_path):
    def logged(name, hook=None):
        loggers = [TextLoggerHook(interval=2), TensorboardLoggerHook(interval=2)]
        workflow = [('train', 5 if kind == 'iter' else 1), ('val', 2 if kind == 'iter' else 1)]
        run(kind, tmp_path / name, hook, workflow, interval=5, hooks=loggers)
        read = EventAccumulator(str(tmp_path / name / 'tf_logs')).Reload()
        (path,) = (tmp_path / name).glob('*.log.json')
        lines = [json.loads(line) for line in path.open()]
        points = {tag: [event.step for event in read.Scalars(tag)] for tag in ('train/loss', 'val/loss')}
        return [(line['mode'], line['step'], line['loss']) for line in lines if 'mode' in line], points

    # Lines about the moment of the checkpoint itself: the training's before it, the validation's after it.
    back = logged('back', Back('after_train_iter', 8, tmp_path / 'back' / 'iter_5.pth'))
    assert logged('whole') == back
    (aside,) = (tmp_path / 'back').glob('*.superseded')
    moved = [json.loads(line) for line in aside.open()]
    assert [(line['mode'], line['step']) for line in moved] == [('val', 5), ('train', 7), ('train', 9)]


def test_nothing_behind_it_happens(tmp_path):
    class Late(LoggerHook):
        heard = ()

        def after_train_iter(self, runner):
            self.heard += (runner.iter,)

    late = Late()
    run('iter', tmp_path, hooks=[Back('after_train_iter', 7, tmp_path / 'iter_6.pth'), late])
    assert late.heard == (*range(7), 6, 7, *range(8, 15))


@pytest.mark.parametrize('first', [0, 4])
def test_what_an_accumulation_cycle_has_gathered_is_void(first, tmp_path):
    """Also of an update that began after the checkpoint, which knows nothing of it."""

    class Updates(Hook):
        def before_run(self, runner):
            runner.configure_update(cumulative_iters=3)

        def after_train_iter(self, runner):
            if runner.iter >= first:
                runner.update(runner.outputs['loss'], 'head')

    def go(folder, *hooks):
        def optimizer(model):
            return {'head': torch.optim.SGD(model.head.parameters(), lr=0.1, momentum=0.9)}

        runner = tiny_runner('iter', work_dir=folder, optimizer=optimizer, max_iters=15)
        runner.register_hook(CheckpointHook(interval=3, by_epoch=False))
        for hook in (Updates(), *hooks):
            runner.register_hook(hook, 'VERY_LOW')
        runner.run([loader()], [('train', 1)])
        return weights(runner.model)

    back = Back('after_train_iter', 7, tmp_path / 'back' / 'iter_3.pth')
    assert torch.equal(go(tmp_path / 'whole'), go(tmp_path / 'back', back))
    assert back.gone


class StopsOnce(Back):
    """Saves, goes back, and stops the run on the other branch where it has saved."""

    def after_train_iter(self, runner):
        if runner.iter == 6 and not self.gone:
            next(hook for hook in runner.hooks if isinstance(hook, CheckpointHook)).save_now(runner)
        elif runner.iter == 6:
            with torch.no_grad():
                runner.model.head.weight.zero_()
            runner.stop('enough')


def test_what_was_saved_behind_it_does_not_count_as_saved(tmp_path):
    stopped = run('iter', tmp_path, StopsOnce('before_train_iter', 7, tmp_path / 'iter_6.pth'))
    assert not stopped.model.head.weight.any()
    assert torch.equal(torch.load(tmp_path / 'iter_7.pth')['state_dict']['head.weight'], stopped.model.head.weight)


def test_an_evaluation_that_fails_at_the_number_of_a_lost_save_loses_no_weights(tmp_path):
    class Fails(EvalHook):
        def _do_evaluate(self, runner):
            if back.gone:
                raise RuntimeError('no room')

    back = Back('before_train_iter', 7, tmp_path / 'iter_3.pth')
    with pytest.raises(RuntimeError, match='no room'):
        run('iter', tmp_path, back, hooks=[Fails(loader(8), by_epoch=False, interval=6)])
    assert 'no room' in torch.load(tmp_path / 'iter_6.pth')['meta']['not_evaluated']


class ScoresInTurn(EvalHook):
    """Its scores are given."""

    def __init__(self, scores, **options):
        super().__init__(loader(4), by_epoch=False, save_best='acc', rule='greater', **options)
        self.given = list(scores)

    def _score(self, runner):
        return self._record(runner, {'acc': self.given.pop(0)})


@pytest.mark.parametrize(
    ('start', 'scores', 'best'),
    [(6, [0.9, 0.6, 0.3, 0.2, 0.1], (0.6, 'iter_6')), (None, [0.5, 0.9, 0.6, 0.3, 0.2, 0.1], (0.6, 'iter_6'))],
)
def test_the_best_is_the_best_of_this_branch(start, scores, best, tmp_path):
    hook = ScoresInTurn(scores, start=start, interval=3)
    runner = run('iter', tmp_path, Back('before_train_iter', 7, tmp_path / 'iter_3.pth'), hooks=[hook])
    messages = runner.meta['hook_msgs']
    assert (messages['best_score'], messages['best_ckpt']) == (best[0], str(tmp_path / f'best_acc_{best[1]}.pth'))
    assert hook.best_ckpt_path == messages['best_ckpt']
