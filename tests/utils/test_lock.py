"""One run in a folder at a time, shown with real processes."""

import errno
import hashlib
import os
import signal

import pytest

from runnerkit.utils.lock import FolderLock


def other(folder, stay=False):
    """Let another process claim ``folder``: its id, and what it said (nothing, if it could)."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            lock = FolderLock(folder)
            os.write(write, b'-')
            if stay:
                signal.pause()
            lock.release()
        except BlockingIOError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.close(write)
    said = os.read(read, 1000).decode()
    os.close(read)
    if not stay:
        os.waitpid(child, 0)
    return child, said.strip('-')


def end(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_second_process_is_told_who_was_first(tmp_path):
    lock = FolderLock(tmp_path)
    assert f'{tmp_path} is in use by process {os.getpid()} on ' in other(tmp_path)[1]
    lock.release()
    lock.release()
    assert list(tmp_path.iterdir()) == []
    assert other(tmp_path)[1] == ''


def test_a_killed_process_keeps_nobody_out(tmp_path):
    child, said = other(tmp_path, stay=True)
    assert said == ''
    with pytest.raises(BlockingIOError, match=f'in use by process {child} on .*, since 20'):
        FolderLock(tmp_path)
    end(child)
    assert (tmp_path / '.lock').exists()
    FolderLock(tmp_path).release()


def test_a_worker_that_outlives_the_run_keeps_nobody_out(tmp_path):
    lock = FolderLock(tmp_path)
    worker = os.fork()  # has all open files, as the workers of a loader do
    if worker == 0:
        signal.pause()
        os._exit(0)
    lock.release()
    assert other(tmp_path)[1] == ''
    end(worker)


def test_a_worker_that_outlives_a_killed_run_keeps_nobody_out(tmp_path):
    read, write = os.pipe()
    run = os.fork()
    if run == 0:
        FolderLock(tmp_path)
        worker = os.fork()
        if worker == 0:
            signal.pause()
            os._exit(0)
        os.write(write, str(worker).encode())
        signal.pause()
    worker = int(os.read(read, 100))
    assert f'in use by process {run} on' in other(tmp_path)[1]
    end(run)
    os.kill(worker, 0)  # it is alive
    assert other(tmp_path)[1] == ''
    os.kill(worker, signal.SIGKILL)
    os.close(read)
    os.close(write)


def test_the_claim_survives_that_its_own_process_reads_the_folder(tmp_path):
    lock = FolderLock(tmp_path)
    for path in tmp_path.iterdir():
        hashlib.sha256(path.read_bytes())
    assert other(tmp_path)[1].startswith(f'{tmp_path} is in use by process {os.getpid()} on')
    lock.release()
    assert other(tmp_path)[1] == ''


def test_a_process_cannot_claim_a_folder_twice(tmp_path):
    lock = FolderLock(tmp_path)
    with pytest.raises(BlockingIOError, match=f'in use by process {os.getpid()} '):
        FolderLock(tmp_path)
    assert other(tmp_path)[1]  # the first claim still holds
    lock.release()


def test_a_forked_process_cannot_release_the_claim(tmp_path):
    lock = FolderLock(tmp_path)
    child = os.fork()
    if child == 0:
        lock.release()
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / '.lock').exists()
    assert other(tmp_path)[1]
    lock.release()


@pytest.mark.parametrize('link', [os.symlink, os.link])
def test_a_link_is_not_followed(link, tmp_path):
    target = tmp_path / 'precious'
    target.write_text('content')
    link(target, tmp_path / '.lock')
    with pytest.raises(OSError, match=r'\.lock is a link, which is not followed: delete it') as refused:
        FolderLock(tmp_path)
    assert refused.value.errno == errno.ELOOP
    assert target.read_text() == 'content'


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / '.lock')
    with pytest.raises(OSError, match='not a plain file'):
        FolderLock(tmp_path)


def test_a_lock_file_that_is_deleted_under_ones_hands_is_made_anew(tmp_path, monkeypatch):
    real, tries = FolderLock._is_there, []

    def there(self, file):
        if not tries:
            os.unlink(self.path)
        tries.append(real(self, file))
        return tries[-1]

    monkeypatch.setattr(FolderLock, '_is_there', there)
    lock = FolderLock(tmp_path)
    assert tries == [False, True]
    assert other(tmp_path)[1]
    lock.release()


def test_where_there_are_no_locks_nothing_is_claimed(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, 'No locks available')

    monkeypatch.setattr('fcntl.flock', flock)
    lock = FolderLock(tmp_path)
    lock.release()
    assert lock.path.read_text() == ''  # nobody has signed it, or deleted what another one may use
