"""When a save is exact: where it moves in the middle of something, and what a file says that could not wait."""

import logging
import os

import pytest
import torch
from support import Counts, loader, thinned, tiny_runner, weights

from runnerkit.hooks import CheckpointHook, EvalHook, Hook, OptimizerHook, StepLrUpdaterHook, TextLoggerHook
from runnerkit.runner import EpochBasedRunner, IterBasedRunner


def start(folder, hooks=()):
    runner = tiny_runner(work_dir=folder, max_iters=8)
    runner.register_hook(OptimizerHook(), 'ABOVE_NORMAL')
    runner.register_hook(CheckpointHook(interval=1, by_epoch=False))
    for hook in hooks:
        runner.register_hook(hook)
    return runner


def told(caplog):
    return [r.getMessage() for r in caplog.records if getattr(r, 'exactness', False) and r.levelno >= logging.WARNING]


class SavesInAPoint(Hook):
    def before_train_iter(self, runner):
        if runner.iter == 2:
            runner.save(filename_tmpl='before.pth', create_symlink=False)

    def after_train_iter(self, runner):
        if runner.iter == 1:
            runner.save(filename_tmpl='inside.pth', create_symlink=False)


@pytest.mark.parametrize('priority', ['HIGH', 'NORMAL', 'LOW'])
def test_a_save_before_other_hooks_of_its_point_moves_behind_them(priority, tmp_path, caplog):
    caplog.set_level(logging.INFO)

    def registered(folder):
        runner, counts = start(tmp_path / folder), Counts()
        runner.register_hook(SavesInAPoint(), priority)
        runner.register_hook(counts)
        runner.register_hook(TextLoggerHook(), 'VERY_LOW')  # only looks on
        return runner, counts

    undisturbed, counts = registered('first')
    undisturbed.run([loader()], [('train', 1)])
    (moved,) = (each.getMessage() for each in caplog.records if 'the save of inside.pth moves' in each.getMessage())
    assert moved.endswith('it was asked for in after_train_iter, among hooks that may change the run')
    again, goes_on = registered('second')
    again.resume(str(tmp_path / 'first' / 'inside.pth'))
    caplog.clear()
    again.run([loader()], [('train', 1)])
    assert torch.equal(weights(again.model), weights(undisturbed.model))
    assert goes_on.n == counts.n
    assert told(caplog) == []


def test_a_save_behind_all_hooks_that_act_does_not_move(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    hook = SavesInAPoint()
    hook.before_train_iter = lambda runner: None
    start(tmp_path, hooks=[hook]).run([loader()], [('train', 1)])
    assert (tmp_path / 'inside.pth').is_file()
    assert 'moves' not in caplog.text


def saves_at(point):
    """A hook that saves the run once at a point."""

    def save(self, runner, *scores):
        if runner.completed_iters >= 2 and not vars(self).setdefault('has_saved', False):
            self.has_saved = True
            runner.save(filename_tmpl='inside.pth', create_symlink=False)

    return type('Saves', (Hook,), {point: save})()


class Drifts(Counts):
    """Moves the weights at a point, by what it has counted."""

    def drift(self, runner, *scores):
        self.n += 1
        with torch.no_grad():
            runner.model.head.weight.mul_(1 + self.n * torch.rand(()) / 100)

    after_train_iter = Hook.after_train_iter


def resumed_inside(point, priority, folder, caplog, hook=None, evaluates_by_epoch=None):
    """Whether a run that is resumed from a save within ``point`` equals the undisturbed one, and what it warns of."""

    def run(checkpoint=None):
        runner = tiny_runner(max_epochs=2, work_dir=folder)
        runner.register_optimizer_hook({})
        runner.register_hook(saves_at(point), priority)
        if hook is not None:
            runner.register_hook(hook())
        if evaluates_by_epoch is not None:
            runner.register_hook(EvalHook(loader(8), by_epoch=evaluates_by_epoch), 'LOW')
        if checkpoint is not None:
            runner.resume(checkpoint)
        runner.run([loader()], [('train', 1)])
        return weights(runner.model)

    undisturbed = run()
    caplog.clear()
    again = run(str(folder / 'inside.pth'))
    return torch.equal(undisturbed, again), told(caplog)


POINTS = (
    'before_train_iter',
    'after_forward',
    'after_backward',
    'after_step',
    'after_evaluate',
    'after_train_iter',
    'after_train_epoch',
)


@thinned(point=POINTS, priority=['HIGH', 'LOW'])
def test_a_save_that_any_point_asks_for_is_exact(point, priority, tmp_path, caplog):
    is_free = point not in ('after_forward', 'after_backward')  # where weights must not change
    hook = type('Drifts', (Drifts,), {point: Drifts.drift}) if is_free else None
    assert resumed_inside(point, priority, tmp_path, caplog, hook, evaluates_by_epoch=False) == (True, [])


def test_a_save_that_cannot_wait_says_what_it_leaves_out(tmp_path, caplog):
    """The best checkpoint has the weights that were evaluated."""

    def run(checkpoint=None):
        runner = tiny_runner(max_epochs=2, work_dir=tmp_path)
        runner.register_optimizer_hook({})
        runner.register_hook(EvalHook(loader(8), by_epoch=False, start=3, interval=99, save_best='loss'), 'LOW')
        runner.register_hook(type('Drifts', (Drifts,), {'after_train_iter': Drifts.drift})(), 'VERY_LOW')
        if checkpoint is not None:
            runner.resume(checkpoint)
        runner.run([loader()], [('train', 1)])
        return weights(runner.model)

    undisturbed = run()
    caplog.clear()
    assert not torch.equal(run(str(tmp_path / 'best_loss_iter_3.pth')), undisturbed)
    assert told(caplog) == [
        'the checkpoint was saved in after_train_iter, before the run called Drifts there: a resume is not exact'
    ]


def test_save_checkpoint_writes_at_once_and_says_once_that_it_is_not_exact(tmp_path, caplog):
    class Saves(Hook):
        def after_forward(self, runner):
            path = runner.save_checkpoint(runner.work_dir, f'now_{runner.iter}.pth')
            assert os.path.isfile(path)

    runner = start(tmp_path, hooks=[Saves()])
    runner.run([loader()], [('train', 1)])
    (text,) = told(caplog)
    assert text.startswith('save_checkpoint writes at once and on one rank, so a run that resumes')
    assert text.endswith('is not exact (inside an iteration): call runner.save() on every rank instead')
    again = start(tmp_path / 'resumed')
    again.resume(str(tmp_path / 'now_3.pth'))
    again.run([loader()], [('train', 1)])
    assert 'the checkpoint was saved inside an iteration: a resume is not exact' in told(caplog)


def test_a_save_at_the_beginning_of_an_iteration_leaves_nothing_out(tmp_path, caplog):
    def registered(folder):
        runner = start(tmp_path / folder)
        runner.register_hook(SavesInAPoint(), 'VERY_HIGH')
        runner.register_hook(StepLrUpdaterHook(step=1, by_epoch=False))
        return runner

    undisturbed = registered('first')
    undisturbed.run([loader()], [('train', 1)])
    again = registered('second')
    again.resume(str(tmp_path / 'first' / 'before.pth'))
    caplog.clear()
    again.run([loader()], [('train', 1)])
    assert torch.equal(weights(again.model), weights(undisturbed.model))
    assert told(caplog) == []


def test_a_file_of_one_rank_says_that_it_is_not_exact(tmp_path):
    class Asks(Hook):
        def before_train_iter(self, runner):
            if runner.iter == 1:
                runner.save(filename_tmpl='asked.pth', alone=True)

    runner = tiny_runner(work_dir=tmp_path, max_epochs=1)
    runner.register_hook(Asks())
    runner.run([loader(12)], [('train', 1)])
    assert torch.load(tmp_path / 'asked.pth')['runnerkit']['not_exact'] == 'inside an iteration'


def test_an_evaluation_inside_an_iteration_moves_the_save_behind_it(tmp_path):
    class Evaluates(Hook):
        def before_train_iter(self, runner):
            if runner.iter == 1:
                runner.evaluate(loader(4))

        def after_evaluate(self, runner, scores):
            runner.save(filename_tmpl='asked.pth')

    runner = tiny_runner(IterBasedRunner, work_dir=tmp_path, max_iters=3)
    runner.register_hook(Evaluates())
    runner.run([loader(12)], [('train', 1)])
    assert torch.load(tmp_path / 'asked.pth')['meta']['iter'] == 2


def test_a_save_moves_to_the_end_of_a_point_whose_calls_change_meanwhile(tmp_path):
    class Changes(Hook):
        def after_train_iter(self, runner):
            runner.hooks.listen('after_train_epoch', print)
            runner.hooks.unlisten('after_train_epoch', print)

    class Asks(Hook):
        def after_train_iter(self, runner):
            if runner.iter == 1:
                runner.save(filename_tmpl='asked.pth')

    runner = tiny_runner(work_dir=tmp_path, max_epochs=1)
    runner.register_hook(Changes(), priority='HIGH')
    runner.register_hook(Asks())
    runner.run([loader(12)], [('train', 1)])
    assert torch.load(tmp_path / 'asked.pth')['meta']['iter'] == 2


class AsInMmcv(EpochBasedRunner):
    """A loop of a user's, which does not say what it works on."""

    def train(self, data_loader, **kwargs):
        self.model.train()
        self.mode, self.data_loader = 'train', data_loader
        self.call_hook('before_train_epoch')
        for i, batch in enumerate(data_loader):
            self._inner_iter = i
            self.call_hook('before_train_iter')
            self.run_iter(batch, train_mode=True)
            self.call_hook('after_train_iter')
            self._iter += 1
        self.call_hook('after_train_epoch')
        self._epoch += 1


def test_a_save_inside_a_users_loop_moves_to_the_end_of_the_iteration(tmp_path):
    class Asks(Hook):
        def after_forward(self, runner):
            if runner.iter == 1:
                runner.save(filename_tmpl='asked.pth')
                assert not (tmp_path / 'asked.pth').exists()

    runner = tiny_runner(AsInMmcv, work_dir=tmp_path, max_epochs=1)
    runner.register_hook(Asks())
    runner.run([loader(12)], [('train', 1)])
    assert torch.load(tmp_path / 'asked.pth')['meta']['iter'] == 2


class SavesFirst(Hook):
    """Saves before the run has begun, and has a state."""

    n = 0

    def before_run(self, runner):
        self.path = runner.save(filename_tmpl='first.pth', create_symlink=False)

    def after_train_iter(self, runner):
        self.n += 1

    def state_dict(self):
        return {'n': self.n}

    def load_state_dict(self, state):
        self.n = state['n']


@pytest.mark.parametrize('kind', [EpochBasedRunner, IterBasedRunner])
def test_a_save_before_a_resumed_run_has_its_state_waits_for_it(kind, tmp_path, caplog):
    caplog.set_level(logging.INFO)

    def run(folder, checkpoint=None, limit=8):
        runner = tiny_runner(kind, work_dir=tmp_path / folder, max_iters=limit, seed=len(folder))
        runner.register_optimizer_hook({})
        runner.register_hook(hook := SavesFirst())
        runner.register_hook(CheckpointHook(interval=3, by_epoch=False))
        if checkpoint is not None:
            runner.resume(str(checkpoint))
        runner.run([loader()], [('train', 1)])
        return weights(runner.model), hook.n, hook.path

    *undisturbed, _ = run('whole')
    assert 'moves' not in caplog.text
    _, _, path = run('cut', tmp_path / 'whole' / 'iter_3.pth', limit=4)
    assert 'the save of first.pth moves to the end of before_run' in caplog.text
    first, saved = torch.load(path), torch.load(tmp_path / 'whole' / 'iter_3.pth')
    assert first['runnerkit']['progress'] == saved['runnerkit']['progress']
    caplog.clear()
    *again, _ = run('again', path)
    assert torch.equal(again[0], undisturbed[0])
    assert again[1] == undisturbed[1]
    assert not any('not exact' in text for text in told(caplog))


def test_a_save_between_resume_and_run_says_what_it_lacks(tmp_path):
    start(tmp_path).run([loader()], [('train', 1)])
    runner = start(tmp_path / 'again')
    runner.resume(str(tmp_path / 'iter_3.pth'))
    path = runner.save(filename_tmpl='first.pth')
    assert torch.load(path)['runnerkit']['not_exact'] == 'before the state of the resumed run was restored'


class Heard(Counts):
    """What it has heard of evaluations, also before the run was resumed."""

    after_train_iter = Hook.after_train_iter

    def after_val_iter(self, runner):
        self.n += 1

    def after_evaluate(self, runner, scores):
        self.n += 100


@thinned(kind=[IterBasedRunner, EpochBasedRunner], point=['after_val_iter', 'after_evaluate'], priority=['LOW', 'HIGH'])
def test_a_save_in_an_evaluation_of_the_workflow_moves_to_its_end(kind, point, priority, tmp_path, caplog):
    """The file has the weights that were evaluated, and a resumed run neither repeats nor forgets the evaluation."""

    def run(checkpoint=None):
        runner = tiny_runner(kind, work_dir=tmp_path, max_iters=8)
        runner.register_optimizer_hook({})
        runner.register_hook(saves_at(point), priority)
        runner.register_hook(heard := Heard())
        if checkpoint is not None:
            runner.resume(checkpoint)
        runner.run([loader(16), loader(8)], [('train', 4 if kind is IterBasedRunner else 1), ('val', 2)])
        return heard.n, weights(runner.model), runner.scores

    undisturbed = run()
    caplog.clear()
    assert torch.load(tmp_path / 'inside.pth')['meta']['iter'] == 4
    n, weight, scores = run(str(tmp_path / 'inside.pth'))
    assert (n, scores) == (undisturbed[0], undisturbed[2])
    assert torch.equal(weight, undisturbed[1])
    assert told(caplog) == []
