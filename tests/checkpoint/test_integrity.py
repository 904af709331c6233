"""Files that are damaged, and files that are of no use."""

import errno
import os

import pytest
import torch

from runnerkit.checkpoint import why_damaged
from runnerkit.checkpoint.integrity import training_state_problem


def save(path, value=1.0, age=0):
    torch.save({'w': torch.full((1000,), value)}, path)
    os.utime(path, (path.stat().st_mtime - age,) * 2)
    return path


def flip_bit(path, where=0.5):
    data = bytearray(path.read_bytes())
    data[int(len(data) * where)] ^= 1
    path.write_bytes(bytes(data))


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


def test_a_whole_file_with_objects_is_not_damaged(tmp_path):
    torch.save({'x': errno.__spec__}, tmp_path / 'epoch_1.pth')
    assert why_damaged(tmp_path / 'epoch_1.pth') is None  # loading it is refused for another reason


@pytest.mark.parametrize(
    'checkpoint, problem',
    [
        ({'meta': {'epoch': 1, 'iter': 10}, 'state_dict': {}}, None),
        ([1], 'holds no training state'),
        ({'w': torch.ones(1)}, 'holds no training state'),
        ({'meta': {'epoch': 1, 'iter': 10}}, 'holds no training state'),
        ({'meta': {'iter': 10}, 'state_dict': {}}, "meta['epoch'] is None"),
        ({'meta': {'epoch': 1, 'iter': -5}, 'state_dict': {}}, "meta['iter'] is -5"),
        ({'meta': {'epoch': 10**30, 'iter': 5}, 'state_dict': {}}, "meta['epoch'] is 1000"),
    ],
)
def test_what_can_be_resumed(checkpoint, problem):
    found = training_state_problem(checkpoint)
    assert found is None if problem is None else problem in found
