"""Checkpoints at URLs: the newest whole one, and what is swept."""

import fsspec
import pytest
import torch
from torch import nn

from runnerkit.checkpoint import find_latest_at, save_checkpoint, sweep_at


@pytest.fixture
def memory():
    """fsspec's files in memory, empty."""
    files = fsspec.filesystem('memory')
    yield files
    if files.exists('/remote'):
        files.rm('/remote', recursive=True)


def test_the_newest_whole_one_at_a_url(memory, caplog):
    assert find_latest_at('memory://remote') is None
    for n in (9, 10, 2):
        save_checkpoint(nn.Linear(2, 1), f'memory://remote/epoch_{n}.pth')
    save_checkpoint(nn.Linear(2, 1), 'memory://remote/best_acc_epoch_11.pth')
    assert find_latest_at('memory://remote/')[1] == 'memory://remote/epoch_2.pth'  # the youngest, whatever its number
    damaged = bytearray(memory.cat_file('/remote/epoch_2.pth'))
    damaged[len(damaged) // 2] ^= 1
    memory.pipe_file('/remote/epoch_2.pth', bytes(damaged))
    assert find_latest_at('memory://remote')[1] == 'memory://remote/epoch_10.pth'
    assert 'memory://remote/epoch_2.pth is skipped: its record' in caplog.text


def test_a_storage_that_tells_no_time_goes_by_the_numbers(memory, monkeypatch):
    for n in (9, 10, 2):
        save_checkpoint(nn.Linear(2, 1), f'memory://remote/iter_{n}.pth')
    monkeypatch.delattr('runnerkit.fileio.backends.FsspecBackend.modified')
    assert find_latest_at('memory://remote') == (0.0, 'memory://remote/iter_10.pth')


@pytest.mark.parametrize('prefix', ['', 'file://'])
def test_a_folder_by_path_or_url(tmp_path, prefix):
    save_checkpoint(nn.Linear(2, 1), str(tmp_path / 'epoch_1.pth'))
    written, path = find_latest_at(f'{prefix}{tmp_path}')
    assert (written, path) == ((tmp_path / 'epoch_1.pth').stat().st_mtime, str(tmp_path / 'epoch_1.pth'))
    assert find_latest_at(str(tmp_path), {'backend': 'disk'})[1] == path


def test_half_written_files_are_swept(memory):
    for name in ('.epoch_1.pth.tmp', 'epoch_1.pth', '.hidden'):
        memory.pipe_file(f'/remote/{name}', b'x')
    assert sweep_at('memory://remote') == ['.epoch_1.pth.tmp']
    assert sorted(memory.ls('/remote', detail=False)) == ['/remote/.hidden', '/remote/epoch_1.pth']
    assert sweep_at('memory://remote/nowhere') == []


def test_what_is_found_is_what_was_saved(memory):
    model = nn.Linear(2, 1)
    save_checkpoint(model, 'memory://remote/epoch_1.pth')
    with fsspec.open(find_latest_at('memory://remote')[1], 'rb') as file:
        assert torch.equal(torch.load(file)['state_dict']['weight'], model.weight)
