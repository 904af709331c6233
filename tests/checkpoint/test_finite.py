"""What a checkpoint says of itself, and who reads it."""

import torch

from runnerkit.checkpoint import save_checkpoint
from runnerkit.checkpoint.finite import described, why_file_not_finite, why_not_finite
from runnerkit.checkpoint.store import Store, finite_beside, resolve_checkpoint

BAD = {'non_finite': {'weights': 'a (1 of 2 values)', 'loss': 'a training loss'}}


def file(folder, name, meta=None):
    save_checkpoint(torch.nn.Linear(1, 1), folder / name, meta=meta)
    return folder / name


def test_files_that_do_not_say_count_as_finite(tmp_path):
    assert why_not_finite({'meta': {}}) is None
    for content in ({}, [], {'meta': None}, {'meta': {'non_finite': {}}}, {'meta': {'non_finite': 'x'}}):
        assert why_not_finite(content) is None
    assert why_file_not_finite(file(tmp_path, 'a.pth')) is None
    (tmp_path / 'b.pth').write_bytes(b'no checkpoint')
    assert why_file_not_finite(tmp_path / 'b.pth') is None
    assert why_file_not_finite(tmp_path / 'missing.pth') is None


def test_a_file_that_says_it(tmp_path):
    text = 'NaN or infinite values in a (1 of 2 values), a training loss'
    assert why_file_not_finite(file(tmp_path, 'a.pth', BAD)) == text
    evil = {'meta': {'non_finite': {'weights': '\x1b[31m'}}}
    assert '\x1b' not in why_not_finite(evil)


def test_the_newest_finite_one_of_a_folder(tmp_path):
    for number, meta in enumerate([{}, {}, BAD, BAD], 1):
        file(tmp_path, f'epoch_{number}.pth', meta)
    assert finite_beside(str(tmp_path / 'epoch_4.pth')) == str(tmp_path / 'epoch_2.pth')
    assert finite_beside(str(tmp_path / 'epoch_2.pth')) == str(tmp_path / 'epoch_1.pth')
    (tmp_path / 'latest.pth').symlink_to('epoch_1.pth')  # killed before it moved
    assert Store(tmp_path).resolve_checkpoint() == str(tmp_path / 'epoch_2.pth')
    assert resolve_checkpoint(tmp_path) == str(tmp_path / 'epoch_2.pth')


def test_many_tensors_are_one_line():
    assert described({'a': '1 of 2 values'}) == 'a (1 of 2 values)'
    assert described({'a': '1 of 2 values', 'b': ''}) == 'a (1 of 2 values) and 1 other tensor'
    assert described({'a': '1 of 2 values', 'b': '', 'c': ''}) == 'a (1 of 2 values) and 2 other tensors'
