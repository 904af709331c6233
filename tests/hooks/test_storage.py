"""Where hooks put files, and how they delete them there."""

import io
import os

import fsspec
import pytest
import torch
from support import Noisy, loader, tiny_runner
from torch.utils.data import DataLoader

from runnerkit.fileio import FileClient
from runnerkit.fileio.file_client import HardDiskBackend
from runnerkit.hooks import CheckpointHook


@pytest.fixture
def memory():
    files = fsspec.filesystem('memory')
    yield files
    files.store.clear()


def names(memory, folder):
    """Of all files there but the one that says whose they are."""
    found = sorted(path.removeprefix(folder + '/') for path in memory.ls(folder, detail=False))
    return [name for name in found if name != '.run.json']


def test_checkpoints_at_a_url_old_ones_are_deleted(tmp_path, memory):
    runner = tiny_runner(work_dir=tmp_path / 'run', max_epochs=4)
    hook = CheckpointHook(interval=1, out_dir='memory://kept', max_keep_ckpts=2)
    runner.register_hook(hook)
    runner.run([loader(4)], [('train', 1)])
    assert names(memory, '/kept/run') == ['epoch_3.pth', 'epoch_4.pth']
    assert runner.meta['hook_msgs']['last_ckpt'] == hook.out_dir + '/epoch_4.pth' == 'memory://kept/run/epoch_4.pth'
    assert hook.args['create_symlink'] is False
    assert isinstance(hook.file_client, FileClient)


def best_in(out_dir, *scores):
    class Scored(Noisy):
        left = iter(scores)

        def evaluate(self, results, logger=None):
            return {'acc': next(self.left)}

    kind = {'type': 'EvalHook', 'save_best': 'acc', 'test_fn': lambda model, loader: []}
    return {**kind, 'dataloader': DataLoader(Scored()), 'out_dir': out_dir}


def test_the_best_at_a_url_replaces_the_former_one(tmp_path, memory):
    runner = tiny_runner(work_dir=tmp_path / 'run', max_epochs=3)
    runner.register_hook_from_cfg(best_in('memory://best', 0.1, 0.3, 0.2))
    runner.run([loader(4)], [('train', 1)])
    assert names(memory, '/best/run') == ['best_acc_epoch_2.pth']


def test_a_storage_that_refuses_to_delete_ends_no_training(tmp_path, memory, monkeypatch, caplog):
    def refuse(*arguments):
        raise RuntimeError('AccessDenied')

    monkeypatch.setattr(FileClient, 'remove', refuse)
    runner = tiny_runner(work_dir=tmp_path / 'run', max_epochs=2)
    runner.register_hook_from_cfg(best_in('memory://kept', 0.1, 0.3))
    runner.register_hook(CheckpointHook(interval=1, out_dir='memory://kept', max_keep_ckpts=1))
    runner.run([loader(4)], [('train', 1)])
    best = [f'best_acc_epoch_{n}.pth' for n in (1, 2)]
    assert names(memory, '/kept/run') == [*best, 'epoch_1.pth', 'epoch_2.pth']
    for name in ('best_acc_epoch_1.pth', 'epoch_1.pth'):
        assert f'{name} could not be deleted (AccessDenied)' in caplog.text


def test_a_second_run_of_a_hook_goes_on_in_its_folder(tmp_path):
    hook = CheckpointHook(interval=1, out_dir=str(tmp_path / 'kept'))
    for _ in range(2):
        runner = tiny_runner(work_dir=tmp_path / 'run', max_epochs=1)
        runner._hooks = [hook]
        runner.run([loader(4)], [('train', 1)])
    assert [path.name for path in (tmp_path / 'kept' / 'run').iterdir() if path.is_dir()] == []


def test_a_storage_of_the_users_own_gets_every_file(tmp_path):
    kept = {}

    class Memory(HardDiskBackend):
        def put(self, obj, filepath):
            kept[filepath] = bytes(obj)

        def isfile(self, filepath):
            return filepath in kept

        def remove(self, filepath):
            del kept[filepath]

    FileClient.register_backend('kept', Memory, force=True)
    runner = tiny_runner(work_dir=tmp_path, max_epochs=3)
    runner.register_hook(
        CheckpointHook(interval=1, max_keep_ckpts=2, create_symlink=False, file_client_args={'backend': 'kept'})
    )
    runner.run([loader(8)], [('train', 1)])
    assert [os.path.basename(path) for path in kept] == ['epoch_2.pth', 'epoch_3.pth']
    assert list(tmp_path.glob('*.pth')) == []
    assert torch.load(io.BytesIO(kept[str(tmp_path / 'epoch_3.pth')]), weights_only=True)['meta']['epoch'] == 3


def test_a_file_url_is_a_folder_with_links(tmp_path):
    runner = tiny_runner(work_dir=tmp_path / 'run', max_epochs=1)
    hook = CheckpointHook(interval=1, out_dir=f'file://{tmp_path}/kept')
    runner.register_hook(hook)
    assert hook.store(runner).place == str(tmp_path / 'kept' / 'run')
    runner.run([loader(4)], [('train', 1)])
    assert sorted(path.name for path in (tmp_path / 'kept' / 'run').glob('*.pth')) == ['epoch_1.pth', 'latest.pth']


def run_in(work_dir, out_dir, resume=None, epochs=1):
    runner = tiny_runner(work_dir=work_dir, max_epochs=epochs)
    runner.register_hook(CheckpointHook(interval=1, out_dir=str(out_dir)))
    if resume is not None:
        runner.resume(str(resume))
    runner.run([loader(4)], [('train', 1)])


@pytest.mark.parametrize('where', ['folder', 'url'])
def test_two_work_dirs_of_one_name_do_not_share_a_folder(where, tmp_path, memory):
    out_dir = 'memory://shared' if where == 'url' else tmp_path / 'shared'
    run_in(tmp_path / 'a' / 'run', out_dir)
    with pytest.raises(FileExistsError, match=r'shared/run belongs to the run in .*/a/run.* on .*the run in .*/b/run'):
        run_in(tmp_path / 'b' / 'run', out_dir)
    assert not list((tmp_path / 'b' / 'run').glob('*.pth'))
    run_in(tmp_path / 'b' / 'other', out_dir)
    run_in(tmp_path / 'a' / 'run', out_dir, epochs=2)  # the same work dir
    checkpoint = f'{out_dir}/run/epoch_1.pth'
    run_in(tmp_path / 'c' / 'run', out_dir, resume=checkpoint, epochs=2)  # the same run, by its checkpoint
