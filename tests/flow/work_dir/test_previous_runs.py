"""A work dir that an earlier run has used: which files are that run's, and renaming its folder."""

import logging
import os
import socket
from unittest.mock import Mock

import pytest

from runnerkit.checkpoint import Store
from runnerkit.checkpoint.atomic import replace_link
from runnerkit.config import Config
from runnerkit.flow import Context, Options
from runnerkit.flow.work_dir import previous_runs
from runnerkit.flow.work_dir.previous_runs import (
    files_of_a_run,
    make_room,
    other_stores,
    rename_aside,
    set_checkpoints_aside,
)
from runnerkit.flow.work_dir.record import write_record
from runnerkit.flow.work_dir.snapshot import take_over
from runnerkit.hooks import CheckpointHook, Hook
from runnerkit.utils.lock import FolderLock

OWN = [
    '20261121_114345.log',
    '20261121_114345.log.json',
    '20261121_114345.log.json.superseded',
    '20261121_120000_2.log',
    '.epoch_3.pth.4711.tmp',
    '.flow.json',
    '.run.json',
    'best_acc_epoch_2.pth',
    'code',
    'curve.png',
    'epoch_1.pth',
    'epoch_2.pth',
    'latest.pth',
    'lenet.py',
    'net-1-of-3.pth',
    'net-3-of-3.pth',
    'of_a_hook',
    'tf_logs',
]
FOREIGN = ['.gitignore', 'configs', 'data.log', 'epochs.pth', 'net.pth', 'notes.txt', 'other.py', 'pretrained.pth']


@pytest.fixture
def used(tmp_path):
    """The work dir of a run."""
    folder = tmp_path / 'run'
    for name in ('code', 'tf_logs'):
        (folder / name).mkdir(parents=True)
        (folder / name / 'inside').write_text(name)
    for name in OWN:
        if not (folder / name).exists() and name not in ('latest.pth', '.flow.json'):
            (folder / name).write_text(name)
    replace_link(folder / 'latest.pth', 'net-3-of-3.pth')
    write_record(folder, config='lenet.py', code='code', files=['.lock', 'of_a_hook'])
    (folder / 'of_a_hook').write_text('')
    return folder


class Fake:
    """A runner, as far as its hooks and its work dir."""


def begins(work_dir, others=None, cfg=(), **options):
    """Make room for a run as it begins."""
    others = os.listdir(work_dir) if others is None else others
    context = Context(Config(dict(cfg)), Options(**options), work_dir=work_dir, others=others)
    context.logger = logging.getLogger('runnerkit')
    make_room(context)


def test_what_a_run_has_written_and_what_not(used):
    for name in FOREIGN:
        (used / name).write_text('')
    assert files_of_a_run(used) == sorted(OWN)


def test_a_start_that_never_ran_has_not_used_the_work_dir(tmp_path):
    assert files_of_a_run(tmp_path / 'missing') == []
    (tmp_path / '20261121_114345.log').write_text('')
    (tmp_path / 'notes.txt').write_text('')
    assert files_of_a_run(tmp_path) == []
    (tmp_path / 'curve.png').write_text('')
    assert files_of_a_run(tmp_path) == ['20261121_114345.log', 'curve.png']


def test_the_folder_moves_and_what_has_come_since_the_start_stays(used):
    numbers = {name: os.stat(used / name, follow_symlinks=False).st_ino for name in OWN}
    before = [*os.listdir(used), '.lock']  # that of a killed run
    used.chmod(0o750)
    lock = FolderLock(used)
    (used / 'new.log').write_text('new')
    begins(used, before)
    moved = used.with_name('run.1')
    assert {name: os.stat(moved / name, follow_symlinks=False).st_ino for name in os.listdir(moved)} == numbers
    assert (moved / 'latest.pth').resolve() == moved / 'net-3-of-3.pth'
    assert sorted(os.listdir(used)) == ['.lock', 'new.log']
    assert used.stat().st_mode == moved.stat().st_mode
    with pytest.raises(BlockingIOError):
        FolderLock(used)
    lock.release()
    assert os.listdir(used) == ['new.log']
    assert sorted(os.listdir(used.parent)) == ['run', 'run.1']


def test_the_first_free_number(used):
    used.with_name('run.1').write_text('')
    used.with_name('run.2').symlink_to('nowhere')
    assert rename_aside(used, OWN) == used.with_name('run.3')


def test_a_kill_between_the_two_renames_leaves_nothing_for_long(used, monkeypatch):
    (used / 'new.log').touch()
    (used.parent / '.other.4711.tmp').touch()
    monkeypatch.setattr(previous_runs.shutil, 'copymode', Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        rename_aside(used, OWN)
    [left] = [name for name in os.listdir(used.parent) if name.startswith(f'.run.{os.getpid()}-')]
    assert sorted(os.listdir(used.parent)) == ['.other.4711.tmp', left, 'run.1']
    used.mkdir()
    take_over(Context(Config({}), work_dir=used, logger=logging.getLogger('runnerkit')))
    assert sorted(os.listdir(used.parent)) == ['.other.4711.tmp', 'run', 'run.1']


def test_behind_a_link_the_folder_is_renamed(used):
    link = used.with_name('link')
    link.symlink_to('run')
    assert rename_aside(link, OWN) == used.with_name('run.1')
    assert link.resolve() == used
    assert os.listdir(used) == []


@pytest.mark.parametrize(
    'prepare, text',
    [
        (lambda used, patch: (used / 'notes.txt').touch(), 'no run wrote notes.txt. .*--if-used aside'),
        (lambda used, patch: (used / 'data').mkdir(), 'no run wrote data'),
        (lambda used, patch: patch.chdir(used), 'it is the current folder, or a parent of it'),
        (lambda used, patch: patch.chdir(used / 'code'), 'it is the current folder, or a parent of it'),
        (lambda used, patch: patch.setattr(os.path, 'ismount', lambda path: path == used), 'it is a mount point'),
    ],
)
def test_what_must_stay_is_refused_with_the_way_out(used, monkeypatch, prepare, text):
    prepare(used, monkeypatch)
    before = sorted(os.listdir(used))
    with pytest.raises(
        FileExistsError, match=rf'run holds an earlier run, and cannot be renamed .*{text}.*--work-dir.*--auto-resume'
    ):
        begins(used)
    assert (sorted(os.listdir(used)), os.listdir(used.parent)) == (before, ['run'])


def test_a_folder_with_the_config_or_the_code_stays(used):
    with pytest.raises(FileExistsError, match='this run reads code, lenet.py in it. Copy that elsewhere'):
        make_room(Context(Config({}), work_dir=used, others=os.listdir(used)), {'lenet.py', 'code'})


def test_other_files_move_too_if_that_is_asked_for(used):
    (used / 'notes.txt').touch()
    begins(used, if_used='aside')
    assert (used.with_name('run.1') / 'notes.txt').exists()
    assert os.listdir(used) == []


def test_a_folder_that_cannot_be_renamed_is_left_as_it_is(used, monkeypatch):
    def busy(source, target):
        raise OSError(16, 'Device or resource busy')

    monkeypatch.setattr(previous_runs.os, 'rename', busy)
    with pytest.raises(OSError, match=r'cannot be renamed .*run\.1: Device or resource busy'):
        begins(used)
    assert sorted(os.listdir(used)) == sorted(OWN)


@pytest.mark.parametrize('at', range(4))
def test_a_kill_at_any_moment_leaves_the_earlier_run_whole(used, monkeypatch, at):
    """The process dies before the n-th rename."""
    rename, left = os.rename, iter(range(at, -1, -1))

    def rename_or_die(*paths):
        if not next(left):
            raise KeyboardInterrupt
        rename(*paths)

    before = os.listdir(used)
    (used / '.lock').touch()
    (used / 'new.log').touch()
    with monkeypatch.context() as patched:
        patched.setattr(os, 'rename', rename_or_die)
        with pytest.raises(KeyboardInterrupt):
            begins(used, before)
    (place,) = [path for path in (used, used.with_name('run.1')) if path.exists()]
    assert {*OWN} <= {*os.listdir(place)}
    assert (place / 'latest.pth').exists()


# --- checkpoints elsewhere -------------------------------------------------------------------------------------------


def test_a_folder_has_one_store_whatever_it_is_called(tmp_path, monkeypatch):
    """An ``out_dir`` that is the parent of the work dir means the work dir."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'runs' / 'a').mkdir(parents=True)
    (tmp_path / 'link').symlink_to('runs')
    runner = Fake()
    runner.work_dir = str(tmp_path / 'link' / 'a')
    for out_dirs, others in (
        (['runs', 'link', str(tmp_path / 'runs'), None], []),
        (['kept', str(tmp_path / 'kept'), 'memory://b', 'link'], ['kept/a', 'memory://b/a']),
    ):
        runner.hooks = [Hook(), *(CheckpointHook(out_dir=out_dir) for out_dir in out_dirs)]
        stores = other_stores(Context(Config({}), work_dir=tmp_path / 'link' / 'a', runner=runner))
        assert [store.place.removeprefix(f'{tmp_path}/') for store in stores] == others


def test_whose_checkpoints_these_are_is_known_until_the_last_one_has_moved(tmp_path):
    store = Store(f'memory://{tmp_path.name}/kept')
    for name in ('best_a_epoch_1.pth', 'epoch_1.pth'):
        store.client.put(b'', store.path(name))
    store.set_owner({'work_dir': str(tmp_path), 'host': socket.gethostname(), 'run': 'a'})
    store.client.put(b'', f'{store}.1/epoch_1.pth')
    moved = []
    store.move = lambda names, to: moved.extend([to, *names])
    set_checkpoints_aside(logging.getLogger('runnerkit'), store, True)
    assert moved == [f'{store}.2', 'best_a_epoch_1.pth', 'epoch_1.pth', '.run.json']


def test_what_a_killed_run_has_left_is_its_own_but_for_what_it_found(used):
    """It has not noted its files, which a run does when it ends."""
    (used / 'notes.txt').write_text('')
    write_record(used, files=None, others=['notes.txt'])
    assert 'of_a_hook' in files_of_a_run(used)
    assert 'notes.txt' not in files_of_a_run(used)
