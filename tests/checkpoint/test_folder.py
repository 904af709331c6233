"""Writing checkpoint folders: completely or not at all, whatever happens."""

import errno
import os
import shutil
import warnings
from contextlib import nullcontext

import pytest
import torch
from disk_model import watched
from folders import checkpoint, same, write
from torch.distributed import checkpoint as dcp

from runnerkit.checkpoint import NotSavedError, Store, find_latest_checkpoint, why_damaged
from runnerkit.checkpoint.content import plain_checkpoint
from runnerkit.checkpoint.convert import convert_checkpoint
from runnerkit.checkpoint.folder_reader import read_folder
from runnerkit.checkpoint.shards import taken_apart
from runnerkit.checkpoint.store import resolve_checkpoint
from runnerkit.parallel.dtensors import local_part


def test_a_folder_holds_the_checkpoint(tmp_path):
    write(tmp_path / 'epoch_1.pth', checkpoint())
    assert same(read_folder(tmp_path / 'epoch_1.pth'), checkpoint())
    assert [path.name for path in tmp_path.iterdir()] == ['epoch_1.pth']


def test_torch_itself_can_read_the_tensors(tmp_path):
    write(tmp_path / 'epoch_1.pth', checkpoint())
    state = {'state_dict': {'w': torch.zeros(5, 3)}}
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        dcp.load(state, checkpoint_id=tmp_path / 'epoch_1.pth', no_dist=True)
    assert torch.equal(state['state_dict']['w'], checkpoint()['state_dict']['w'])


def test_no_path_of_this_machine_gets_into_a_checkpoint(tmp_path):
    write(tmp_path / 'epoch_1.pth', checkpoint())
    for path in (tmp_path / 'epoch_1.pth').iterdir():
        assert os.fsencode(tmp_path.name) not in path.read_bytes()


class Operations:
    """Counts the file operations of a save, and does something at one of them."""

    def __init__(self, at=None, act=None):
        self.at, self.act, self.names = at, act, []

    def __call__(self, name, args, real):
        self.names.append((name, os.path.basename(os.fspath(args[0])) if not isinstance(args[0], int) else ''))
        return self.act(name, args, real) if len(self.names) - 1 == self.at else real()


def die(name, args, real):
    if name == 'write':
        real(args[0], bytes(args[1])[: len(args[1]) // 2])
    os._exit(9)


def no_room(name, args, real):
    if name == 'close':
        real()
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def save(folder, number, latest=True, around=None):
    """As a run does: a link to the newest one, and the one before the last is deleted."""
    store = Store(folder)
    tensors, rest = taken_apart(checkpoint(number))
    local = {name: local_part(value) for name, value in tensors.items()}
    with watched(folder, around) if around else nullcontext():
        name = f'epoch_{number % 10}.pth'
        store.write_folder(name, tensors, local, plain_checkpoint(rest), latest, None, None)


def newest(folder):
    """The number of the newest intact checkpoint, of which every tensor is as it was saved."""
    path = find_latest_checkpoint(folder)
    if path is None:
        return None
    found = read_folder(path)
    number = found['meta']['iter']
    assert same(found, checkpoint(number))
    return number


@pytest.mark.parametrize(('first', 'second'), [(1, 2), (1, 11)], ids=['another name', 'the same name'])
def test_killed_at_any_operation_of_a_save_the_old_or_the_new_one_is_there(tmp_path, first, second):
    count = Operations()
    save(tmp_path / 'count', first)
    save(tmp_path / 'count', second, around=count)
    assert {'mkdir', 'write', 'fsync', 'replace', 'symlink'} <= {name for name, _ in count.names}
    assert newest(tmp_path / 'count') == second
    found = []
    end = count.names.index(('open', 'MANIFEST'))
    save(tmp_path / 'first', first)
    for at in [*range(0, end, 9), *range(end, len(count.names), 2 + 2 * (second == 2))]:
        folder = tmp_path / str(at)
        shutil.copytree(tmp_path / 'first', folder, symlinks=True)
        child = os.fork()
        if child == 0:
            try:
                save(folder, second, around=Operations(at, die))
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        found.append(newest(folder))
        Store(folder).sweep()
        assert newest(folder) == found[-1]
        assert not list(folder.glob('.*.tmp'))
        if at % 5 == 0:
            save(folder, 13)
            assert newest(folder) == 13
    assert set(found) == {first, second}
    assert found == sorted(found)  # from some operation on, it is the new one


def test_a_full_disk_is_told_and_nothing_is_left_of_the_new_one(tmp_path):
    count = Operations()
    save(tmp_path, 1)
    save(tmp_path, 2, around=count)
    before = count.names[: [name for name, _ in count.names].index('replace')]
    for at in [i for i, (name, _) in enumerate(before) if name in ('open', 'write', 'fsync')]:
        with pytest.raises(NotSavedError, match='No space left on device') as caught:
            save(tmp_path, 3, around=Operations(at, no_room))
        assert caught.value.errno == errno.ENOSPC
        assert 'epoch_3.pth' in str(caught.value)
        assert newest(tmp_path) == 2
        assert not list(tmp_path.glob('.*.tmp'))
        assert not (tmp_path / 'epoch_3.pth').exists()


def test_half_a_file_under_the_final_name_is_not_chosen(tmp_path):
    save(tmp_path, 1)
    save(tmp_path, 2)
    part = tmp_path / 'epoch_2.pth/__0_0.distcp'
    part.write_bytes(part.read_bytes()[:-100])
    assert newest(tmp_path) == 1
    (tmp_path / 'epoch_1.pth/MANIFEST').unlink()
    assert find_latest_checkpoint(tmp_path) is None


def test_a_store_lists_deletes_and_replaces_folders_as_files(tmp_path):
    store = Store(tmp_path)
    save(tmp_path, 1)
    save(tmp_path, 2)
    store.write('epoch_3.pth', checkpoint(3), latest=True)
    assert [stored.number for stored in store.numbered()] == [3, 2, 1]
    assert store.is_whole('epoch_2.pth')
    assert not store.is_whole('epoch_4.pth')
    assert store.delete('epoch_1.pth')
    assert not store.delete('epoch_1.pth')
    assert store.resolve_checkpoint() == str(tmp_path / 'latest.pth')
    store.write('epoch_2.pth', checkpoint(2))  # a file in the place of a folder
    save(tmp_path, 3)  # and a folder in that of a file
    assert (tmp_path / 'epoch_2.pth').is_file()
    assert (tmp_path / 'epoch_3.pth').is_dir()
    assert why_damaged(tmp_path / 'latest.pth') is None
    assert resolve_checkpoint(tmp_path / 'epoch_3.pth') == str(tmp_path / 'epoch_3.pth')
    assert resolve_checkpoint(tmp_path) == str(tmp_path / 'latest.pth')


def test_killed_while_it_deletes_a_folder_a_store_can_delete_the_rest(tmp_path):
    save(tmp_path / 'first', 1)
    save(tmp_path / 'first', 2)
    for at in range(5):
        folder = tmp_path / str(at)
        shutil.copytree(tmp_path / 'first', folder, symlinks=True)
        child = os.fork()
        if child == 0:
            with watched(folder, Operations(at, die)):
                Store(folder).delete('epoch_2.pth')
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (9 if at < 4 else 0)
        assert newest(folder) == (2 if at == 0 else 1)
        assert Store(folder).delete('epoch_2.pth') == (at < 4)
        assert not (folder / 'epoch_2.pth').exists()


def test_a_folder_of_somebody_elses_is_not_deleted(tmp_path):
    (tmp_path / 'epoch_1.pth').mkdir()
    (tmp_path / 'epoch_1.pth/thesis.tex').write_text('mine')
    assert not Store(tmp_path).delete('epoch_1.pth')
    with pytest.raises(NotSavedError):
        save(tmp_path, 1)
    assert (tmp_path / 'epoch_1.pth/thesis.tex').read_text() == 'mine'


def test_a_checkpoint_with_a_file_of_somebody_elses_stays_whole(tmp_path):
    save(tmp_path, 1)
    (tmp_path / 'epoch_1.pth/thesis.tex').write_text('mine')
    with pytest.raises(NotSavedError, match=r'such as thesis\.tex: move them elsewhere'):
        save(tmp_path, 1)
    with pytest.raises(OSError, match=r'thesis\.tex'):
        Store(tmp_path).delete('epoch_1.pth')
    assert newest(tmp_path) is not None


def test_latest_may_name_a_folder_where_there_are_no_links(tmp_path, monkeypatch):
    def no_links(*_):
        raise OSError

    monkeypatch.setattr(os, 'symlink', no_links)
    save(tmp_path, 1)
    assert (tmp_path / 'latest.pth').is_file()
    for path in (tmp_path, tmp_path / 'latest.pth'):
        assert resolve_checkpoint(path) == str(tmp_path / 'epoch_1.pth')
    convert_checkpoint(tmp_path, tmp_path / 'out.pth')
    assert torch.load(tmp_path / 'out.pth')['optimizer']['state']


def test_a_checkpoint_that_is_deleted_meanwhile_is_not_listed(tmp_path, monkeypatch):
    save(tmp_path, 1)
    store = Store(tmp_path)
    monkeypatch.setattr(store, '_names', lambda: ['epoch_1.pth', 'epoch_2.pth'])
    assert [stored.number for stored in store.numbered()] == [1]


def test_a_file_takes_the_place_of_a_folder_only_when_it_is_whole(tmp_path, monkeypatch):
    save(tmp_path, 1)

    def full(content, file):
        raise OSError(errno.ENOSPC, 'no room')

    with monkeypatch.context() as patch:
        patch.setattr(torch, 'save', full)
        with pytest.raises(NotSavedError):
            Store(tmp_path).write('epoch_1.pth', checkpoint())
    assert newest(tmp_path) is not None
    Store(tmp_path).write('epoch_1.pth', checkpoint())
    assert (tmp_path / 'epoch_1.pth').is_file()


def test_a_place_that_is_no_folder_takes_none():
    with pytest.raises(ValueError, match=r'memory://x is no folder on a disk.*runnerkit convert'):
        Store('memory://x').check_takes_folders()
    Store('work_dirs').check_takes_folders()


def test_a_sharded_file_is_synced_before_it_is_listed(tmp_path):
    """In the order of the operations: every file is on the disk before the manifest begins."""
    count = Operations()
    save(tmp_path, 1, around=count)
    names = [name for name, _ in count.names]
    begun = next(i for i, (name, path) in enumerate(count.names) if name == 'open' and path == 'MANIFEST')
    opened = sum(name == 'open' for name in names[:begun])
    assert sum(name == 'fsync' for name in names[:begun]) >= opened - 1
    assert names.index('replace') > begun


def test_what_cannot_be_renamed_is_left_and_told(tmp_path, monkeypatch, caplog):
    """A folder that may only be read is looked through all the same."""
    save(tmp_path, 1)
    save(tmp_path, 2)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    (tmp_path / 'epoch_2.pth').rename(tmp_path / f'.epoch_2.pth.{pid}.tmp')
    monkeypatch.setattr('runnerkit.checkpoint.store.put_in_place', lambda *args: os.rename('nothing', 'nowhere'))
    assert newest(tmp_path) == 1
    assert 'is complete, but cannot be renamed to epoch_2.pth' in caplog.text
    monkeypatch.undo()
    assert newest(tmp_path) == 2
