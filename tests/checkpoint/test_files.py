"""Files that are whole or not there, and the choice of the newest whole one."""

import errno
import os
import stat
import subprocess
import sys

import pytest
import torch

from runnerkit.checkpoint import find_latest_checkpoint, sweep_temporaries, why_damaged
from runnerkit.checkpoint.files import (
    DiskFile,
    checkpoint_number,
    checkpoints_in,
    point_latest,
    resolve_latest,
    write_atomically,
)


def save(path, value=1.0, age=0):
    torch.save({'w': torch.full((1000,), value)}, path)
    os.utime(path, (path.stat().st_mtime - age,) * 2)
    return path


def flip_bit(path, where=0.5):
    data = bytearray(path.read_bytes())
    data[int(len(data) * where)] ^= 1
    path.write_bytes(bytes(data))


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    target = save(tmp_path / 'a.pth')
    before = target.read_bytes()

    def fail(file):
        file.write(b'half')
        raise OSError(28, 'No space left on device')

    with pytest.raises(OSError, match='No space'):
        write_atomically(target, fail)
    assert target.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ['a.pth']


def test_a_write_makes_its_folder(tmp_path):
    write_atomically(tmp_path / 'x' / 'y' / 'a.pth', lambda path: torch.save(1, path))
    assert torch.load(tmp_path / 'x' / 'y' / 'a.pth') == 1


def test_latest_is_moved_to_the_new_file(tmp_path):
    first, second = save(tmp_path / 'epoch_1.pth'), save(tmp_path / 'epoch_2.pth')
    latest = tmp_path / 'latest.pth'
    point_latest(first, latest)
    point_latest(second, latest)
    assert latest.is_symlink()
    assert os.readlink(latest) == 'epoch_2.pth'


def test_latest_without_links_is_a_file_with_the_name(tmp_path, monkeypatch):
    def no_links(*_):
        raise OSError('not supported')

    monkeypatch.setattr(os, 'symlink', no_links)
    target, latest = save(tmp_path / 'epoch_1.pth'), tmp_path / 'latest.pth'
    point_latest(target, latest)
    assert not latest.is_symlink()
    assert resolve_latest(latest) == target
    assert find_latest_checkpoint(tmp_path) == target


@pytest.mark.parametrize('where', [0.2, 0.5, 0.8])
def test_a_flipped_bit_is_seen_although_torch_loads_it(tmp_path, where):
    path = save(tmp_path / 'epoch_1.pth')
    assert why_damaged(path) is None
    flip_bit(path, where)
    torch.load(path, weights_only=True)
    assert 'checksum' in why_damaged(path)


def test_truncated_empty_and_foreign_files_are_damaged(tmp_path):
    path = save(tmp_path / 'epoch_1.pth')
    path.write_bytes(path.read_bytes()[:-100])
    assert why_damaged(path)
    path.write_bytes(b'')
    assert why_damaged(path) == 'it is empty'
    path.write_text('hello')
    assert why_damaged(path)


def test_old_files_without_zip_are_whole_if_torch_reads_them(tmp_path):
    torch.save({'w': torch.ones(2)}, tmp_path / 'old.pth', _use_new_zipfile_serialization=False)
    assert why_damaged(tmp_path / 'old.pth') is None


def test_the_newest_whole_checkpoint_is_found(tmp_path, caplog):
    save(tmp_path / 'epoch_1.pth', age=20)
    second = save(tmp_path / 'epoch_2.pth', age=10)
    third = save(tmp_path / 'epoch_3.pth')
    save(tmp_path / 'best_acc_epoch_9.pth')
    point_latest(third, tmp_path / 'latest.pth')
    assert find_latest_checkpoint(tmp_path) == third.resolve()
    flip_bit(third)
    assert find_latest_checkpoint(tmp_path) == second.resolve()
    assert 'epoch_3.pth is skipped: the checksum' in caplog.text
    assert [path.name for path in checkpoints_in(tmp_path)][-1] == 'epoch_1.pth'


def test_no_checkpoint_is_none(tmp_path):
    assert find_latest_checkpoint(tmp_path) is None
    assert find_latest_checkpoint(tmp_path / 'missing') is None


def test_only_dead_processes_files_are_swept(tmp_path):
    dead = subprocess.Popen([sys.executable, '-c', 'pass'])
    dead.wait()
    left = tmp_path / f'.epoch_1.pth.{dead.pid}.tmp'
    alive = tmp_path / f'.epoch_1.pth.{os.getppid()}.tmp'
    others = tmp_path / '.notes.tmp'
    for path in (left, alive, others):
        path.write_text('half')
    assert sweep_temporaries(tmp_path) == [left.name]
    assert alive.exists()
    assert others.exists()


def test_a_file_is_written_in_blocks_and_says_what_went_wrong(tmp_path, monkeypatch):
    written, real = [], os.write
    monkeypatch.setattr('runnerkit.checkpoint.files.BLOCK', 8)
    monkeypatch.setattr(os, 'write', lambda descriptor, data: written.append(len(data)) or real(descriptor, data[:5]))
    with DiskFile(tmp_path / 'a') as file:
        for piece in (b'abc', b'def', b'ghijklmnop', b'q'):
            assert file.write(piece) == len(piece)
        file.sync()
    assert (tmp_path / 'a').read_bytes() == b'abcdefghijklmnopq'
    assert written == [6, 1, 10, 5, 1]

    def full(descriptor, data):
        raise OSError(errno.ENOSPC, 'No space left on device')

    monkeypatch.setattr(os, 'write', full)
    with pytest.raises(OSError, match='No space left on device') as caught:
        write_atomically(tmp_path / 'b', lambda file: torch.save({'w': torch.ones(100)}, file))
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / 'b'))
    assert [path.name for path in tmp_path.iterdir()] == ['a']


def test_a_folder_that_cannot_be_flushed_need_not_be(tmp_path, monkeypatch):
    real, code = os.fsync, errno.EINVAL

    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))
        real(descriptor)

    monkeypatch.setattr(os, 'fsync', fsync)
    write_atomically(tmp_path / 'a', lambda file: file.write(b'x'))
    code = errno.EIO
    with pytest.raises(OSError, match='Input/output error'):
        write_atomically(tmp_path / 'b', lambda file: file.write(b'x'))


def test_a_whole_file_with_objects_is_not_damaged(tmp_path):
    torch.save({'x': errno.__spec__}, tmp_path / 'epoch_1.pth')
    assert why_damaged(tmp_path / 'epoch_1.pth') is None  # loading it is refused for another reason


@pytest.mark.parametrize('name, number', [('epoch_12.pth', 12), ('iter_3.pth', 3), ('best_acc_epoch_3.pth', None)])
def test_numbers_of_checkpoints(name, number):
    assert checkpoint_number(name) == number


@pytest.mark.parametrize(
    'ages, newest',
    [
        ({'epoch_1': 9, 'epoch_2': 5, 'epoch_3': 1}, 'epoch_3'),  # the link was never moved on
        ({'epoch_1': 9, 'epoch_3': 5, 'epoch_2': 1}, 'epoch_2'),  # the run began again from epoch 1
        ({'epoch_3': 9, 'epoch_2': 5, 'epoch_1': 1}, 'epoch_2'),  # copied in any order
    ],
)
def test_the_link_counts_unless_a_younger_one_lies_beyond(ages, newest, tmp_path):
    for name, age in ages.items():
        path = tmp_path / f'{name}.pth'
        torch.save({}, path)
        os.utime(path, (1e9 - age, 1e9 - age))
    point_latest(tmp_path / 'epoch_2.pth', tmp_path / 'latest.pth')
    assert find_latest_checkpoint(tmp_path) == tmp_path / f'{newest}.pth'
