"""When checkpoints are saved, what they are called, and which are deleted."""

import contextlib
import errno
import os
import shutil
import signal
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from support import Measured, Tiny, loader, tiny_runner, weights

from runnerkit.checkpoint import NotSavedError, Store, atomic
from runnerkit.checkpoint import store as store_module
from runnerkit.checkpoint.store import behind_link
from runnerkit.hooks import CheckpointHook, ClosureHook, EvalHook, Hook
from runnerkit.runner import EpochBasedRunner


def saved(tmp_path, kind='epoch', batches=1, limit=None, folder=None, **options):
    runner = tiny_runner(kind, work_dir=tmp_path / 'run', **(limit or {'max_epochs': 5}))
    runner.register_hook(CheckpointHook(**options))
    runner.run([loader(4 * batches)], [('train', 1)])
    folder = folder or tmp_path / 'run'
    return sorted(path.name for path in folder.iterdir()), runner


@pytest.mark.parametrize(
    'options, names',
    [
        ({'interval': 2}, ['epoch_2.pth', 'epoch_4.pth', 'epoch_5.pth']),
        ({'interval': 2, 'save_last': False}, ['epoch_2.pth', 'epoch_4.pth']),
        ({}, ['epoch_5.pth']),
        ({'interval': 1, 'max_keep_ckpts': 2}, ['epoch_4.pth', 'epoch_5.pth']),
        ({'interval': 2, 'max_keep_ckpts': 1}, ['epoch_5.pth']),
        ({'interval': 2, 'max_keep_ckpts': 2}, ['epoch_4.pth', 'epoch_5.pth']),
        ({'interval': 1, 'max_keep_ckpts': 1, 'filename_tmpl': 'net_{}.pth'}, ['net_5.pth']),
    ],
)
def test_by_epoch(tmp_path, options, names):
    found, runner = saved(tmp_path, **options)
    assert found == sorted([*names, 'latest.pth'])
    assert runner.meta['hook_msgs']['last_ckpt'] == str(tmp_path / 'run' / names[-1])
    assert os.readlink(tmp_path / 'run' / 'latest.pth') == names[-1]


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_by_iteration_names_are_distinct_in_either_runner(tmp_path, kind):
    found, runner = saved(tmp_path, kind, batches=3, limit={'max_iters': 7}, interval=2, by_epoch=False)
    assert found == ['iter_2.pth', 'iter_4.pth', 'iter_6.pth', 'iter_7.pth', 'latest.pth']
    for n in (2, 4, 6, 7):
        meta = torch.load(tmp_path / 'run' / f'iter_{n}.pth')['meta']
        assert (meta['iter'], meta['epoch']) == (n, (n - 1) // 3)  # an epoch is complete when its own hooks are done
    assert runner.meta['hook_msgs']['last_ckpt'] == str(tmp_path / 'run' / 'iter_7.pth')


def test_a_run_cut_inside_an_epoch_saves_its_end(tmp_path):
    found, _ = saved(tmp_path, batches=3, limit={'max_iters': 4}, interval=1)
    assert found == ['epoch_1.pth', 'epoch_2.pth', 'latest.pth']
    meta = torch.load(tmp_path / 'run' / 'epoch_2.pth')['meta']
    assert (meta['epoch'], meta['iter']) == (1, 4)


def test_out_dir_gets_a_folder_of_the_runs_name(tmp_path):
    found, _ = saved(tmp_path, folder=tmp_path / 'out' / 'run', interval=5, out_dir=str(tmp_path / 'out'))
    assert found == ['.run.json', 'epoch_5.pth', 'latest.pth']


def test_optimizer_and_link_can_be_left_out(tmp_path):
    found, _ = saved(tmp_path, interval=5, save_optimizer=False, create_symlink=False)
    assert found == ['epoch_5.pth']
    assert 'optimizer' not in torch.load(tmp_path / 'run' / 'epoch_5.pth')


def test_the_file_holds_what_later_hooks_of_the_same_moment_did(tmp_path):
    class Late(Hook):
        def after_train_epoch(self, runner):
            runner.meta.setdefault('hook_msgs', {})['late'] = runner.epoch

    runner = tiny_runner(work_dir=tmp_path, max_epochs=1)
    runner.register_hook(CheckpointHook(interval=1), 'HIGHEST')
    runner.register_hook(Late(), 'LOWEST')
    runner.run([loader(4)], [('train', 1)])
    assert torch.load(tmp_path / 'epoch_1.pth')['meta']['hook_msgs']['late'] == 0


def test_litter_of_killed_runs_is_swept(tmp_path):
    import subprocess
    import sys

    dead = subprocess.Popen([sys.executable, '-c', 'pass'])
    dead.wait()
    (tmp_path / 'run').mkdir()
    (tmp_path / 'run' / f'.epoch_1.pth.{dead.pid}.tmp').write_text('half')
    assert saved(tmp_path, interval=5)[0] == ['epoch_5.pth', 'latest.pth']


def test_nowhere_to_save_is_said_at_the_start():
    runner = tiny_runner(max_epochs=1)
    runner.register_hook(CheckpointHook(interval=1))
    with pytest.raises(ValueError, match='CheckpointHook has nowhere to save to'):
        runner.run([loader(4)], [('train', 1)])
    assert runner.iter == 0


def test_a_run_that_is_stopped_saves_its_end(tmp_path):
    class Stop(Hook):
        def after_train_iter(self, runner):
            if runner.iter == 4:
                runner.stop('enough')

    for kind, limit in (('epoch', {'max_epochs': 5}), ('iter', {'max_iters': 9})):
        runner = tiny_runner(kind, work_dir=tmp_path / kind, **limit)
        runner.register_checkpoint_hook({'interval': 3})
        runner.register_hook(Stop())
        runner.run([loader(12)], [('train', 1)])
        assert os.readlink(tmp_path / kind / 'latest.pth') == 'iter_5.pth'
        assert torch.load(tmp_path / kind / 'iter_5.pth')['meta']['iter'] == 5


def test_after_save_is_called_when_the_file_is_there(tmp_path):
    seen = []

    class Uploads(Hook):
        def after_save(self, runner):
            seen.append(os.path.exists(runner.meta['hook_msgs']['last_ckpt']))

    runner = tiny_runner(work_dir=tmp_path, max_epochs=2)
    runner.register_hook(CheckpointHook(interval=1))
    runner.register_hook(Uploads())
    runner.run([loader(4)], [('train', 1)])
    assert seen == [True, True]


def test_an_unknown_argument_is_said_at_the_start(tmp_path):
    text = "CheckpointHook got an unexpected argument 'intervall'.*did you mean 'interval'"
    with pytest.raises(TypeError, match=text):
        saved(tmp_path, intervall=2)
    assert not list(tmp_path.rglob('*.pth'))


class At(Hook):
    """Does something before an epoch."""

    def __init__(self, epoch, do):
        self.epoch, self.do = epoch, do

    def before_train_epoch(self, runner):
        if runner.epoch == self.epoch:
            self.do()


def refusing(monkeypatch, *numbers):
    """Let writing these epochs fail, as on a full disk."""
    real = atomic.DiskFile.sync

    def sync(self):
        if os.path.basename(self._name) in [f'epoch_{n}.pth' for n in numbers]:
            raise OSError(errno.ENOSPC, 'No space left on device')
        real(self)

    monkeypatch.setattr(atomic.DiskFile, 'sync', sync)


def test_a_save_that_fails_is_said_and_the_next_one_comes(tmp_path, monkeypatch, caplog):
    refusing(monkeypatch, 3)
    found, runner = saved(tmp_path, interval=1, max_keep_ckpts=2)
    assert found == ['epoch_4.pth', 'epoch_5.pth', 'latest.pth']
    assert runner.outcome.kind == 'completed'
    errors = [record.getMessage() for record in caplog.records if record.levelname == 'ERROR']
    path = tmp_path / 'run' / 'epoch_3.pth'
    assert sum('could not be saved' in error for error in errors) == 1
    assert any(
        error.startswith(f'{path} could not be saved: No space left on device. Make room there') for error in errors
    )


def test_a_gap_does_not_keep_old_ones_for_ever_nor_does_a_resume(tmp_path, monkeypatch):
    refusing(monkeypatch, 2, 3)
    runner = tiny_runner(work_dir=tmp_path, max_epochs=4)
    runner.register_hook(CheckpointHook(interval=1, max_keep_ckpts=3))
    runner.run([loader(4)], [('train', 1)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ['epoch_1.pth', 'epoch_4.pth', 'latest.pth']
    runner = tiny_runner(work_dir=tmp_path, max_epochs=6)
    runner.register_hook(CheckpointHook(interval=1, max_keep_ckpts=3))
    runner.resume(str(tmp_path / 'latest.pth'))
    runner.run([loader(4)], [('train', 1)])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        'epoch_4.pth',
        'epoch_5.pth',
        'epoch_6.pth',
        'latest.pth',
    ]


def trained(folder, kind='iter', resume=None, max_keep=2, **options):
    """The files, and the one that latest.pth names, after a run of six units, which resumes ``resume``, else what a
    resume of the folder takes."""
    runner = tiny_runner(kind, work_dir=folder, **{f'max_{kind}s': 6})
    options = {'interval': 1, 'by_epoch': kind == 'epoch', 'max_keep_ckpts': max_keep, **options}
    runner.register_hook(CheckpointHook(**options))
    found = Store(folder).newest()
    if found:
        runner.resume(str(folder / resume) if resume else found.path)
    runner.run([loader(4)], [('train', 1)])
    return names_in(folder)


def names_in(folder):
    return sorted(path.name for path in folder.glob('*.pth')), behind_link(folder / 'latest.pth').resolve().name


def killed(folder, where, call, **options):
    """What `trained` leaves if SIGKILL ends its process instead of the ``call``-th call of a function."""
    child = os.fork()
    if child == 0:
        real, calls = getattr(*where), count(1)

        def last(*args, **kwargs):
            if next(calls) == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        try:
            setattr(*where, last)
            trained(folder, **options)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    return names_in(folder)


LINK, REMOVE, STEP = (store_module, 'replace_link'), (os, 'remove'), (Tiny, 'train_step')


@pytest.mark.parametrize('kind', ['iter', 'epoch'])
@pytest.mark.parametrize('links', [True, False])
@pytest.mark.parametrize(
    ('where', 'call', 'left', 'link'),
    [(LINK, 1, [1], None), (LINK, 6, [4, 5, 6], 5), (REMOVE, 4, [4, 5, 6], 6)],
    ids=['before the first link', 'before the last link', 'before the last deletion'],
)
def test_a_resume_finishes_the_save_of_a_killed_run(kind, links, where, call, left, link, tmp_path, monkeypatch):
    if not links:
        monkeypatch.setattr(os, 'symlink', Mock(side_effect=OSError('no links here')))
    names = [f'{kind}_{n}.pth' for n in left] + ['latest.pth'] * bool(link)
    assert killed(tmp_path, where, call, kind=kind) == (names, f'{kind}_{link}.pth' if link else 'latest.pth')
    whole = ([f'{kind}_5.pth', f'{kind}_6.pth', 'latest.pth'], f'{kind}_6.pth')
    for _ in range(2):  # of the complete run, the first one has nothing left to train
        assert trained(tmp_path, kind) == whole


def test_a_kill_between_two_deletions_leaves_no_old_one_for_ever(tmp_path):
    killed(tmp_path, STEP, 5, max_keep=-1)
    assert killed(tmp_path, REMOVE, 2)[0] == ['iter_2.pth', 'iter_3.pth', 'iter_4.pth', 'latest.pth']
    assert trained(tmp_path)[0] == ['iter_5.pth', 'iter_6.pth', 'latest.pth']


def test_a_resume_on_purpose_from_an_older_one_touches_nothing(tmp_path):
    whole = trained(tmp_path, max_keep=4)
    assert whole == (['iter_3.pth', 'iter_4.pth', 'iter_5.pth', 'iter_6.pth', 'latest.pth'], 'iter_6.pth')
    for name in ('iter_3.pth', 'iter_5.pth'):
        assert killed(tmp_path, STEP, 1, resume=name, max_keep=1) == whole


def test_a_resume_leaves_the_link_out_if_the_run_does(tmp_path):
    for _ in range(2):
        assert trained(tmp_path, create_symlink=False) == (['iter_5.pth', 'iter_6.pth'], 'latest.pth')


def test_the_link_stays_at_the_newest_finite_checkpoint(tmp_path):
    killed(tmp_path, LINK, 6)
    content = torch.load(tmp_path / 'iter_6.pth')
    content['meta']['non_finite'] = {'weights': 'head.bias (1 NaN)'}
    torch.save(content, tmp_path / 'iter_6.pth')
    left = (['iter_4.pth', 'iter_5.pth', 'iter_6.pth', 'latest.pth'], 'iter_5.pth')
    assert trained(tmp_path, resume='iter_6.pth') == left
    assert killed(tmp_path, STEP, 1, resume='iter_5.pth') == left


def test_a_link_that_cannot_be_moved_is_logged(tmp_path, monkeypatch, caplog):
    killed(tmp_path, LINK, 6)
    monkeypatch.setattr(store_module, 'replace_link', Mock(side_effect=OSError(errno.EROFS, 'Read-only file system')))
    trained(tmp_path)
    assert 'latest.pth cannot be moved to iter_6.pth ([Errno 30] Read-only file system)' in caplog.text


def test_a_checkpoint_without_its_link_is_saved(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(store_module, 'replace_link', Mock(side_effect=OSError(errno.EROFS, 'Read-only file system')))
    assert saved(tmp_path, interval=1, max_keep_ckpts=1)[0] == ['epoch_5.pth']
    assert 'latest.pth cannot be moved to epoch_5.pth' in caplog.text
    assert 'could not be saved' not in caplog.text


@pytest.mark.parametrize('async_save', [False, True])
def test_runs_that_are_stopped_again_and_again_leave_no_growing_heap(tmp_path, async_save):
    class Stopping(Hook):
        def after_train_iter(self, runner):
            if runner.iter in (3, 4, 7):
                runner.stop('asked')

    def names():
        return sorted(path.name for path in tmp_path.iterdir())

    for left in (
        ['iter_3.pth', 'iter_4.pth'],
        ['iter_3.pth', 'iter_4.pth', 'iter_5.pth'],
        ['iter_6.pth', 'iter_8.pth'],
    ):
        runner = tiny_runner('iter', work_dir=tmp_path, max_iters=9)
        runner.register_hook(Stopping())
        runner.register_hook(CheckpointHook(interval=3, by_epoch=False, max_keep_ckpts=1, async_save=async_save))
        if names():
            runner.resume(str(tmp_path / 'latest.pth'))
        runner.run([loader()], [('train', 1)])
        assert names() == [*left, 'latest.pth']
    runner = tiny_runner('iter', work_dir=tmp_path, max_iters=9)
    runner.register_hook(CheckpointHook(interval=3, by_epoch=False, max_keep_ckpts=1))
    runner.resume(str(tmp_path / 'latest.pth'))
    runner.run([loader()], [('train', 1)])
    assert names() == ['iter_9.pth', 'latest.pth']


@pytest.mark.parametrize(
    'options', [{'max_keep_ckpts': '3'}, {'async_save': 'no'}, {'interval': True}, {'interval': 1.5}]
)
def test_wrong_types_are_told_at_once(options):
    (name,) = options
    with pytest.raises(TypeError, match=f'{name} must be .*, but got {options[name]!r}'):
        CheckpointHook(**options)


def test_an_unwritten_one_does_not_count_as_kept(tmp_path, monkeypatch):
    refusing(monkeypatch, 3, 4)
    assert saved(tmp_path, interval=1, max_keep_ckpts=2)[0] == ['epoch_2.pth', 'epoch_5.pth', 'latest.pth']


def test_a_run_whose_last_save_failed_fails(tmp_path, monkeypatch):
    refusing(monkeypatch, 4, 5)
    with pytest.raises(
        NotSavedError, match=r'last checkpoint is missing: .*epoch_5.pth could not .*from .*epoch_3.pth'
    ):
        saved(tmp_path, interval=1, max_keep_ckpts=1)
    assert sorted(path.name for path in (tmp_path / 'run').iterdir()) == ['epoch_3.pth', 'latest.pth']


def test_a_run_may_stop_at_the_first_save_that_fails(tmp_path, monkeypatch):
    refusing(monkeypatch, 3)
    with pytest.raises(NotSavedError, match=r'epoch_3.pth could not be saved: No space left .* are whole'):
        saved(tmp_path, interval=1, on_error='stop')
    assert os.readlink(tmp_path / 'run' / 'latest.pth') == 'epoch_2.pth'
    with pytest.raises(ValueError, match="on_error must be 'continue' or 'stop', but got 'stopp'; .*'stop'"):
        CheckpointHook(on_error='stopp')


def test_a_folder_that_vanishes_is_made_anew(tmp_path, caplog):
    work_dir = tmp_path / 'run'
    runner = tiny_runner(work_dir=work_dir, max_epochs=3)
    runner.register_hook(CheckpointHook(interval=1))
    runner.register_hook(At(2, lambda: shutil.rmtree(work_dir)))
    runner.run([loader(4)], [('train', 1)])
    assert sorted(path.name for path in work_dir.iterdir()) == ['epoch_3.pth', 'latest.pth']
    assert f'{work_dir} is gone, with the checkpoints in it; it is created again' in caplog.text


def test_a_folder_that_vanishes_and_cannot_be_made_fails_the_run_at_its_end(tmp_path, caplog):
    def vanish():
        shutil.rmtree(tmp_path / 'disk')
        (tmp_path / 'disk').touch()

    runner = tiny_runner(work_dir=tmp_path / 'disk' / 'run', max_epochs=4)
    runner.register_hook(CheckpointHook(interval=1))
    runner.register_hook(At(2, vanish))
    with pytest.raises(NotSavedError, match='last checkpoint is missing'):
        runner.run([loader(4)], [('train', 1)])
    assert runner.iter == 4
    assert caplog.text.count('Mount or make the folder again') == 2


def test_an_old_one_that_cannot_be_deleted_is_tried_again(tmp_path, monkeypatch, caplog):
    real, refused = os.remove, []

    def remove(path):
        if not refused:
            refused.append(path)
            raise PermissionError(errno.EACCES, 'Permission denied', str(path))
        real(path)

    monkeypatch.setattr(os, 'remove', remove)
    found, _ = saved(tmp_path, interval=1, max_keep_ckpts=2)
    assert found == ['epoch_4.pth', 'epoch_5.pth', 'latest.pth']
    assert 'epoch_1.pth could not be deleted' in caplog.text


def test_the_best_one_is_never_deleted(tmp_path):
    runner = tiny_runner(work_dir=tmp_path, max_epochs=3)
    runner.register_hook(CheckpointHook(interval=1, max_keep_ckpts=1))
    runner.meta['hook_msgs'] = {'best_ckpt': str(tmp_path / 'epoch_1.pth')}
    runner.run([loader(4)], [('train', 1)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ['epoch_1.pth', 'epoch_3.pth', 'latest.pth']


def hear_of_failures(rank, folder):
    """One of two processes: the first one's disk refuses the second epoch and the third."""
    said = []
    for on_error in ('stop', 'continue'):
        runner = tiny_runner(work_dir=Path(folder) / on_error, max_epochs=3)
        runner.register_hook(CheckpointHook(interval=1, on_error=on_error))
        with pytest.MonkeyPatch.context() as patch:
            refusing(patch, *((2, 3) if rank == 0 else ()))
            with pytest.raises(NotSavedError) as caught:
                runner.run([loader(8)], [('train', 1)])
        said.append(str(caught.value))
    return said


def test_all_ranks_hear_of_a_failure(on_ranks, tmp_path):
    for stop, go_on in on_ranks(__file__, 'hear_of_failures', str(tmp_path)):
        assert 'epoch_2.pth could not be saved: No space left' in stop
        assert 'epoch_3.pth could not be saved: No space left' in go_on


@pytest.mark.parametrize('name', ['../precious.pth', '{}/precious.pth', 'notes.pth', '..', 3])
def test_what_a_checkpoint_says_of_older_ones_deletes_nothing_else(name, tmp_path):
    """The names of the ends to delete come from a file that somebody else may have made."""
    (tmp_path / 'run').mkdir()
    name = name.format(tmp_path) if isinstance(name, str) else name
    precious = [tmp_path / 'precious.pth', tmp_path / 'run' / 'notes.pth']
    for path in precious:
        path.write_text('kept')
    hook = CheckpointHook(max_keep_ckpts=1)
    hook.load_state_dict({'missed': [], 'stops': [name, 'iter_3.pth']})
    assert hook.state_dict()['stops'] == ['iter_3.pth']
    runner = tiny_runner(work_dir=tmp_path / 'run', max_epochs=2)
    runner.register_hook(hook)
    runner.run([loader(4)], [('train', 1)])
    assert all(path.exists() for path in precious)


def test_a_template_of_ones_own_is_numbered_by_iterations_in_an_epoch_runner(tmp_path):
    runner = tiny_runner(work_dir=tmp_path, max_epochs=1)
    runner.register_hook(CheckpointHook(interval=2, by_epoch=False, filename_tmpl='x_{}.pth', max_keep_ckpts=1))
    runner.run([loader(20)], [('train', 1)])
    assert [path.name for path in tmp_path.glob('x_*')] == ['x_5.pth']
    assert runner.meta['hook_msgs']['last_ckpt'] == str(tmp_path / 'x_5.pth')


class Broken(Measured):
    """Its evaluation fails while ``error`` is set, from the second one on."""

    error, calls = None, 0

    def val_step(self, data, optimizer=None):
        self.calls += 1
        if self.error is not None and self.calls > 1:
            raise self.error
        return super().val_step(data)


class Evaluates(Hook):
    """A user's hook with an evaluation of its own."""

    def __init__(self, point):
        setattr(self, point, lambda runner: runner.evaluate(loader(4)))


class FailsAfterwards(Hook):
    def after_evaluate(self, runner, scores):
        raise KeyError('a score that it needs')


def cut_short(tmp_path, error, *hooks, kind='epoch', resume=None, **options):
    """A run with an evaluation that ends with ``error``; its runner."""
    by_epoch = kind == 'epoch'
    limits = {'max_epochs': 3} if by_epoch else {'max_iters': 6}
    runner = tiny_runner(kind, model=Broken(), work_dir=tmp_path, **limits)
    runner.model.load_state_dict({name: torch.ones_like(v) / 9 for name, v in runner.model.state_dict().items()})
    runner.model.error = error
    for hook in hooks or [EvalHook(loader(4), by_epoch=by_epoch, interval=1 if by_epoch else 2)]:
        runner.register_hook(hook, 'LOW')
    runner.register_optimizer_hook({'grad_clip': None})
    runner.register_hook(CheckpointHook(by_epoch=by_epoch, **{'interval': 1, **options}))
    if resume:
        runner.resume(str(resume))
    if error is None:
        runner.run([loader(8)], [('train', 1)])
    else:
        with pytest.raises(type(error)):
            runner.run([loader(8)], [('train', 1)])
        assert runner.outcome.error is error
    return runner


NUMPY = AttributeError("module 'numpy' has no attribute 'float'")


@pytest.mark.parametrize(
    ('kind', 'hooks', 'options', 'files'),
    [
        ('epoch', (), {}, ['epoch_1.pth', 'epoch_2.pth']),
        ('epoch', (), {'async_save': True}, ['epoch_1.pth', 'epoch_2.pth']),
        ('epoch', (), {'filename_tmpl': 'net_{}.pth'}, ['net_1.pth', 'net_2.pth']),
        ('epoch', (), {'interval': 2}, ['epoch_2.pth']),
        ('epoch', (), {'interval': 3}, ['iter_4.pth']),  # none is due
        ('epoch', ('after_train_epoch',), {}, ['epoch_1.pth', 'epoch_2.pth']),
        ('epoch', ('after_train_iter',), {}, ['iter_2.pth']),
        ('iter', (), {'interval': 4}, ['iter_4.pth']),
        ('iter', (), {'interval': 3}, ['iter_3.pth', 'iter_4.pth']),
        ('iter', ('after_train_iter',), {'interval': 1}, ['iter_1.pth', 'iter_2.pth']),
    ],
)
def test_an_evaluation_that_fails_loses_no_weights(kind, hooks, options, files, tmp_path, caplog):
    """The file says that it is not evaluated; a run that goes on from it says so and trains as an undisturbed one."""
    made = [Evaluates(point) for point in hooks]
    cut_short(tmp_path / 'run', NUMPY, *made, kind=kind, **options)
    assert {path.name for path in (tmp_path / 'run').iterdir()} == {*files, 'latest.pth'}
    newest = torch.load(tmp_path / 'run' / 'latest.pth')
    assert newest['meta']['not_evaluated'] == "module 'numpy' has no attribute 'float'"
    for name in files[:-1]:
        assert 'not_evaluated' not in torch.load(tmp_path / 'run' / name)['meta']
    assert 'not_evaluated' not in caplog.text
    caplog.clear()
    made = [Evaluates(point) for point in hooks]
    resumed = cut_short(tmp_path / 'run', None, *made, kind=kind, resume=tmp_path / 'run', **options)
    assert "saved when a run failed (module 'numpy' has no" in caplog.text
    made = [Evaluates(point) for point in hooks]
    whole = cut_short(tmp_path / 'whole', None, *made, kind=kind, **options)
    assert torch.equal(weights(resumed.model), weights(whole.model))
    assert resumed.completed_iters == whole.completed_iters == 6


@pytest.mark.parametrize(
    ('interval', 'keep', 'files'),
    [
        (1, 2, ['epoch_2.pth', 'epoch_3.pth']),
        (3, 1, ['epoch_3.pth']),
        (2, 5, ['iter_2.pth', 'iter_4.pth', 'iter_6.pth']),  # none is between two
    ],
)
def test_what_was_saved_between_two_intervals_is_deleted_when_it_is_evaluated_again(interval, keep, files, tmp_path):
    options = {'interval': interval, 'max_keep_ckpts': keep, 'kind': files[0].partition('_')[0]}
    cut_short(tmp_path, NUMPY, **options)
    cut_short(tmp_path, None, resume=tmp_path, **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == [*files, 'latest.pth']


@pytest.mark.parametrize('failing', [FailsAfterwards(), ClosureHook('after_train_epoch', lambda runner: 1 / 0)])
def test_so_does_what_fails_behind_it_at_the_end_of_an_epoch(failing, tmp_path):
    vars(failing).pop('priority', None)
    runner = tiny_runner(model=Measured(), work_dir=tmp_path, max_epochs=2)
    runner.register_hook(EvalHook(loader(4)), 'LOW')
    runner.register_hook(failing, 'VERY_LOW')
    runner.register_hook(CheckpointHook(interval=1))
    with pytest.raises((KeyError, ZeroDivisionError)):
        runner.run([loader(8)], [('train', 1)])
    assert 'epoch_1.pth' in os.listdir(tmp_path)


@pytest.mark.parametrize('kind', [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_an_evaluation_loses_no_weights(kind, tmp_path):
    interrupted = cut_short(tmp_path / 'a', kind())
    assert interrupted.outcome.kind == ('interrupted' if kind is KeyboardInterrupt else 'failed')
    assert 'epoch_2.pth' in os.listdir(tmp_path / 'a')


def test_a_training_that_fails_saves_nothing_more(tmp_path):
    """Neither in its step, nor if the evaluation came before anything was trained, nor where the save itself fails."""
    runner = tiny_runner(work_dir=tmp_path / 'a', max_epochs=2)
    runner.register_hook(EvalHook(loader(4)), 'LOW')
    runner.register_hook(CheckpointHook(interval=1))
    runner.register_hook(ClosureHook('before_train_iter', lambda runner: runner.iter < 3 or 1 / 0))
    with pytest.raises(ZeroDivisionError):
        runner.run([loader(8)], [('train', 1)])
    assert sorted(os.listdir(tmp_path / 'a')) == ['epoch_1.pth', 'latest.pth']

    runner = tiny_runner(model=Broken(), work_dir=tmp_path / 'b', max_epochs=2)
    runner.model.error, runner.model.calls = ValueError('boom'), 1
    runner.register_hook(EvalHook(loader(4), start=0), 'LOW')
    runner.register_hook(CheckpointHook(interval=1))
    with pytest.raises(ValueError, match='boom'):
        runner.run([loader(8)], [('train', 1)])
    assert os.listdir(tmp_path / 'b') == []

    class Unsavable(Hook):
        saves = 0

        def state_dict(self):
            self.saves += 1
            raise TypeError('no state')

    hook = Unsavable()
    runner = tiny_runner(work_dir=tmp_path / 'c', max_epochs=2)
    runner.register_hook(hook)
    runner.register_hook(CheckpointHook(interval=1))
    with pytest.raises(TypeError, match='no state'):
        runner.run([loader(8)], [('train', 1)])
    assert hook.saves == 1


def test_an_evaluation_that_is_caught_is_no_failure(tmp_path):
    class Catches(Hook):
        def after_train_epoch(self, runner):
            with contextlib.suppress(AttributeError):
                runner.evaluate(loader(4))

    runner = tiny_runner(model=Broken(), work_dir=tmp_path, max_epochs=2)
    runner.model.error = NUMPY
    runner.register_hook(Catches(), 'LOW')
    runner.register_hook(CheckpointHook(interval=1))
    runner.run([loader(8)], [('train', 1)])
    assert all('not_evaluated' not in torch.load(path)['meta'] for path in tmp_path.glob('epoch_*.pth'))


def test_a_full_disk_does_not_hide_why_the_evaluation_failed(tmp_path, monkeypatch, caplog):
    def full(*args, **kwargs):
        raise NotSavedError(errno.ENOSPC, 'No space left on device')

    monkeypatch.setattr(EpochBasedRunner, 'save_checkpoint', full)
    cut_short(tmp_path, NUMPY, interval=2)
    assert 'epoch_2.pth could not be saved: No space left on device' in caplog.text


class OnRanks(Broken):
    def __init__(self, rank, failing):
        super().__init__()
        self.error, self.calls = (ValueError('boom'), 1) if rank == failing else (None, 0)


def cut_on_ranks(rank, folder, failing):
    runner = tiny_runner(model=OnRanks(rank, failing), work_dir=folder, max_epochs=2)
    runner.register_hook(EvalHook(loader(8)), 'LOW')
    runner.register_hook(CheckpointHook(interval=1))
    saves, save = [], runner.save_checkpoint
    runner.save_checkpoint = lambda *args, **options: (saves.append(rank), save(*args, **options))
    try:
        runner.run([loader(16)], [('train', 1)])
    except Exception as error:
        return f'{type(error).__name__}: {error}', saves


@pytest.mark.parametrize('failing', [0, 1])
def test_a_rank_that_fails_alone_keeps_no_other_one_waiting(failing, on_ranks, tmp_path):
    ends = on_ranks(__file__, 'cut_on_ranks', str(tmp_path), failing)
    assert ends[failing][0] == 'ValueError: boom'
    assert [saves for _, saves in ends] == [[0], []]
    found = torch.load(tmp_path / 'epoch_1.pth')
    assert (found['meta']['epoch'], 'not_evaluated' in found['meta']) == (1, True)
    assert (found['runnerkit']['world_size'], len(found['runnerkit']['ranks'])) == (2, 1)
