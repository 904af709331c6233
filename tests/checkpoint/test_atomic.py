"""Files that are whole or not there."""

import errno
import os
import stat
import subprocess
import sys

import pytest
import torch
from disk_model import Disk, watched

from runnerkit.checkpoint.atomic import DiskFile, replace_link, sweep, write_atomically


def save(path, value=1.0, age=0):
    torch.save({'w': torch.full((1000,), value)}, path)
    os.utime(path, (path.stat().st_mtime - age,) * 2)
    return path


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
    save(tmp_path / 'epoch_1.pth'), save(tmp_path / 'epoch_2.pth')
    latest = tmp_path / 'latest.pth'
    replace_link(latest, 'epoch_1.pth')
    replace_link(latest, 'epoch_2.pth')
    assert latest.is_symlink()
    assert os.readlink(latest) == 'epoch_2.pth'


def test_only_dead_processes_files_are_swept(tmp_path):
    dead = subprocess.Popen([sys.executable, '-c', 'pass'])
    dead.wait()
    left = tmp_path / f'.epoch_1.pth.{dead.pid}.tmp'
    alive = tmp_path / f'.epoch_1.pth.{os.getppid()}.tmp'
    others = tmp_path / '.notes.tmp'
    for path in (left, alive, others):
        path.write_text('half')
    assert sweep(tmp_path) == [left.name]
    assert alive.exists()
    assert others.exists()


def test_what_this_process_is_writing_is_not_swept(tmp_path):
    swept = []

    def content(file):
        file.write(b'whole')
        swept.extend(sweep(tmp_path / '..' / tmp_path.name))  # by another run in this process

    write_atomically(tmp_path / 'epoch_1.pth', content)
    assert swept == []
    assert (tmp_path / 'epoch_1.pth').read_bytes() == b'whole'
    of_a_former_process = tmp_path / f'.epoch_1.pth.{os.getpid()}.tmp'
    of_a_former_process.write_text('half')
    assert sweep(tmp_path) == [of_a_former_process.name]


def test_two_runs_in_one_process_may_write_the_same_file(tmp_path):
    path = tmp_path / 'epoch_1.pth'

    def content(file):
        file.write(b'first')
        write_atomically(path, b'second')
        assert path.read_bytes() == b'second'

    write_atomically(path, content)
    assert path.read_bytes() == b'first'
    assert os.listdir(tmp_path) == [path.name]


def test_a_link_that_this_process_is_moving_is_not_swept(tmp_path, monkeypatch):
    swept, replace = [], os.replace

    def sweep_and_replace(*args):
        swept.extend(sweep(tmp_path))
        replace(*args)

    monkeypatch.setattr(os, 'replace', sweep_and_replace)
    replace_link(tmp_path / 'latest.pth', 'epoch_1.pth')
    assert swept == []
    assert os.readlink(tmp_path / 'latest.pth') == 'epoch_1.pth'


def test_a_file_is_written_in_blocks_and_says_what_went_wrong(tmp_path, monkeypatch):
    written, real = [], os.write
    monkeypatch.setattr('runnerkit.checkpoint.atomic.BLOCK', 8)
    monkeypatch.setattr(os, 'write', lambda descriptor, data: written.append(len(data)) or real(descriptor, data[:5]))
    with DiskFile(tmp_path / 'a') as file:
        for piece in (b'abc', b'def', b'ghijklmnop', b'q'):
            assert file.write(piece) == len(piece)
        file.sync()
    assert (tmp_path / 'a').read_bytes() == b'abcdefghijklmnopq'
    assert written == [6, 1, 10, 5, 1]

    room = iter([True] * 3)

    def full(descriptor, data):
        if next(room, False):  # of a later error, torch says something else
            return real(descriptor, data)
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


def states_after_power_loss(folder, change):
    """What ``folder`` may be found to hold without temporary files: at any time during ``change``, and after it."""
    disk, during = Disk(folder), []

    def look():
        return [{name: each for name, each in state.items() if name[0] != '.'} for state in disk.after_power_loss()]

    def around(name, args, real):
        result = real()
        disk.note(name, args, result)
        during.extend(look())
        return result

    with watched(folder, around):
        change()
    return during, look()


def test_after_a_power_loss_the_old_file_or_the_whole_new_one_is_there(tmp_path):
    old, new = {'a': ('file', b'old')}, {'a': ('file', b'new and longer')}
    (tmp_path / 'a').write_bytes(b'old')
    during, after = states_after_power_loss(
        tmp_path, lambda: write_atomically(tmp_path / 'a', lambda file: file.write(b'new and longer'))
    )
    assert all(state in (old, new) for state in during)
    assert old in during
    assert all(state == new for state in after)


def test_after_a_power_loss_a_link_is_the_old_or_the_new_one(tmp_path):
    os.symlink('old', tmp_path / 'latest')
    during, after = states_after_power_loss(tmp_path, lambda: replace_link(tmp_path / 'latest', 'new'))
    assert all(state in ({'latest': ('link', 'old')}, {'latest': ('link', 'new')}) for state in during)
    assert all(state == {'latest': ('link', 'new')} for state in after)
