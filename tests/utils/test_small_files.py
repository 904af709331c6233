"""Files of ours, and what else may lie in their places: nothing waits for it, and nobody sees a traceback."""

import os
from contextlib import suppress

import pytest

from runnerkit.checkpoint import find_checkpoint, find_latest_checkpoint
from runnerkit.checkpoint.atomic import MANIFEST
from runnerkit.checkpoint.store import OWNER, Store
from runnerkit.flow.work_dir.previous_runs import files_of_a_run
from runnerkit.flow.work_dir.record import RECORD, read_record
from runnerkit.utils.control import ADDRESS, read_address
from runnerkit.utils.small_files import open_own, own_folder, read_json, read_small

IN_THE_WAY = {
    'a pipe': os.mkfifo,
    'a folder': os.mkdir,
    'a loop of links': lambda path: os.symlink(path, path),
    'a link to nowhere': lambda path: os.symlink('nowhere', path),
    'a device': lambda path: os.symlink('/dev/zero', path),
    'deep JSON': lambda path: path.write_text('[' * 100_000),
    'no text': lambda path: path.write_bytes(b'\xff\0\1' * 10),
    'null': lambda path: path.write_text('null'),
    'nothing': lambda path: path.write_text(''),
}
NAMES = (ADDRESS, RECORD, OWNER, 'latest.pth', 'epoch_3.pth', 'best_acc_epoch_3.pth', f'epoch_4.pth/{MANIFEST}')


@pytest.mark.parametrize('name', [*NAMES, '20260101_000000.log.json'])
@pytest.mark.parametrize('what', IN_THE_WAY)
def test_what_is_in_the_way_is_skipped(tmp_path, name, what):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    IN_THE_WAY[what](path)
    assert find_latest_checkpoint(tmp_path) is None
    assert read_record(tmp_path) == {}
    assert read_address(tmp_path) == {}
    assert Store(tmp_path).owner() is None
    files_of_a_run(tmp_path)
    for best in (True, False):
        with suppress(FileNotFoundError):  # what is named, and not read, may be there
            assert find_checkpoint(str(tmp_path), best=best)


def test_the_newest_checkpoint_is_found_behind_one_that_cannot_be_read(tmp_path):
    import torch

    torch.save({'state_dict': {}, 'meta': {}}, tmp_path / 'epoch_1.pth')
    for number, make in enumerate(IN_THE_WAY.values(), 2):
        make(tmp_path / f'epoch_{number}.pth')
    assert find_latest_checkpoint(tmp_path) == tmp_path / 'epoch_1.pth'


def test_a_file_is_small_and_regular(tmp_path):
    path = tmp_path / 'a.json'
    path.write_text('[1, 2]')
    assert read_json(path) == [1, 2]
    assert read_small(path, most=6) == b'[1, 2]'
    with pytest.raises(OSError, match='has more than 5 bytes'):
        read_small(path, most=5)
    with pytest.raises(OSError, match='is not a regular file'):
        read_small('/dev/zero')


@pytest.mark.parametrize('mode', ['a', 'ab', 'wb'])
def test_only_plain_files_are_written(mode, tmp_path):
    path, other = tmp_path / 'a.log', tmp_path / 'other'
    with open_own(path, mode) as file:
        file.write(b'one' if 'b' in mode else 'one')
    with open_own(path, mode) as file:
        file.write(b'two' if 'b' in mode else 'two')
    assert path.read_text() == ('two' if mode == 'wb' else 'onetwo')
    other.write_text('mine')
    for make in (
        *list(IN_THE_WAY.values())[:5],
        lambda path: os.symlink(other, path),
        lambda path: os.link(other, path),
    ):
        path.unlink() if path.is_symlink() or not path.is_dir() else path.rmdir()
        make(path)
        with pytest.raises(OSError, match=r'a\.log'):
            open_own(path, mode)
    assert other.read_text() == 'mine'


def test_only_plain_folders_are_used(tmp_path):
    assert own_folder(tmp_path / 'a') == own_folder(tmp_path / 'a') == tmp_path / 'a'
    (tmp_path / 'b').symlink_to('a')
    with pytest.raises(OSError, match='b is a link, which is not followed: delete it'):
        own_folder(tmp_path / 'b')
