"""When checkpoints are saved, what they are called, and which are deleted."""

import os

import pytest
import torch
from support import loader, tiny_runner

from runnerkit.hooks import CheckpointHook, Hook


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
    assert found == ['epoch_5.pth', 'latest.pth']


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


def test_sync_buffer_leaves_a_single_process_as_it_is(tmp_path):
    assert saved(tmp_path, interval=5, sync_buffer=True)[0] == ['epoch_5.pth', 'latest.pth']


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


def test_an_end_that_is_saved_already_is_not_saved_twice(tmp_path):
    class Stop(Hook):
        def after_train_epoch(self, runner):
            runner.stop('enough')

    runner = tiny_runner(work_dir=tmp_path, max_epochs=5)
    runner.register_checkpoint_hook({'interval': 1})
    runner.register_hook(Stop())
    runner.run([loader(12)], [('train', 1)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ['epoch_1.pth', 'latest.pth']


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


@pytest.mark.parametrize(
    'options, text',
    [
        ({'intervall': 2}, "CheckpointHook got an unexpected argument 'intervall'.*did you mean 'interval'"),
        ({'interval': 1.5}, 'interval must be a whole number'),
    ],
)
def test_wrong_arguments_are_said_at_the_start(tmp_path, options, text):
    with pytest.raises(TypeError, match=text):
        saved(tmp_path, **options)
    assert not list(tmp_path.rglob('*.pth'))
