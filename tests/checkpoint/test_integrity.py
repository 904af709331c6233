"""Whether a file is what was written: every bit that matters is found; and whether a run can go on from it."""

import io
import struct
import zipfile
import zlib

import numpy as np
import pytest
import torch

from runnerkit.checkpoint import find_latest_checkpoint, integrity, why_damaged
from runnerkit.checkpoint.integrity import check_records, training_state_problem


def content(value=None):
    file = io.BytesIO()
    torch.save({'w': torch.arange(3.0), 'n': [1, 'x']} if value is None else value, file)
    return file.getvalue()


def damage_in(data):
    """What is wrong with the records of a file of these bytes."""
    try:
        check_records(io.BytesIO(data))
    except Exception as error:
        return str(error) or type(error).__name__
    return None


def is_equal(data):
    """Whether torch loads what `content` saved; None if it does not load it at all."""
    try:
        found = torch.load(io.BytesIO(data), weights_only=True)
    except Exception:
        return None
    return list(found) == ['w', 'n'] and found['n'] == [1, 'x'] and found['w'].tolist() == [0, 1, 2]


def rezipped(path, change=lambda info: None, records=None, **options):
    """A checkpoint as the module zipfile writes one."""
    with zipfile.ZipFile(io.BytesIO(content())) as source, zipfile.ZipFile(path, 'w', **options) as target:
        for info in source.infolist():
            name = info.filename
            info = zipfile.ZipInfo(name)
            info.compress_type = options.get('compression', zipfile.ZIP_STORED)
            change(info)
            target.writestr(info, (records or {}).get(name, source.read(name)))
    return path


@pytest.mark.parametrize('step', [3, pytest.param(1, marks=pytest.mark.thorough)])  # 3: a sample
def test_every_flipped_bit_is_found_or_harmless(step):
    """Bits of headers, table of contents, end records, pickle and tensors; one of each byte of padding."""
    whole, found = content(), 0
    assert damage_in(whole) is None
    for position in range(len(whole)):
        for bit in range(position % step, 8, step) if whole[position] != ord('Z') else [position % 8]:
            data = bytearray(whole)
            data[position] ^= 1 << bit
            if damage_in(data) is not None:
                found += 1
            else:
                assert is_equal(data) is not False, f'bit {bit} of byte {position} is believed'
    assert found > 4 * len(whole) / step  # the rest is padding, times, versions


def test_every_truncation_is_found():
    whole = content()
    assert all(damage_in(whole[:length]) is not None for length in range(len(whole)) if length not in (1, 2, 3))
    assert all(damage_in(whole + b'\0' * more) is not None for more in (1, 4, 22))
    assert damage_in(b'') == 'it is empty'


def test_a_record_that_is_marked_as_a_folder_is_damaged(tmp_path):
    """Torch passes over it and leaves the tensor uninitialised; zipfile's own test passes over it, too."""
    data = bytearray(content())
    entry = data.index(b'archive/data/0', data.index(b'PK\1\2')) - 46
    data[entry + 38] ^= 1 << 4
    (tmp_path / 'epoch_1.pth').write_bytes(data)
    with zipfile.ZipFile(tmp_path / 'epoch_1.pth') as archive:
        assert archive.testzip() is None
    assert 'is not marked as plain data' in why_damaged(tmp_path / 'epoch_1.pth')
    assert find_latest_checkpoint(tmp_path) is None


def test_a_compressed_record_is_refused_before_it_is_read(tmp_path, monkeypatch):
    bomb = {'archive/data/0': bytes(10**6)}
    path = rezipped(tmp_path / 'bomb.pth', compression=zipfile.ZIP_DEFLATED, records=bomb)
    monkeypatch.setattr(zlib, 'decompressobj', None)
    monkeypatch.setattr(torch, 'load', None)
    assert why_damaged(path) == "its record 'archive/data.pkl' is compressed, which torch.save never does"


@pytest.mark.parametrize('name', ['archive/version', 'ARCHIVE/data/0', 'archive/data/0/'])
def test_records_of_one_name_and_folders_are_refused(name, tmp_path):
    """Torch takes upper and lower case for the same."""

    def rename(info):
        if info.filename == 'archive/.data/serialization_id':
            info.filename = name

    assert 'its record ' in why_damaged(rezipped(tmp_path / 'a.pth', rename))


def test_records_that_share_bytes_are_refused(tmp_path):
    """However small the file is, reading them all could take forever."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, 'w') as archive:
        archive.writestr('archive/data/0', bytes(100))
    path = tmp_path / 'a.pth'
    with zipfile.ZipFile(path, 'w') as archive:
        archive.writestr('archive/data/1', inner.getvalue())
        shared = zipfile.ZipFile(inner).infolist()[0]
        shared.header_offset = 30 + len('archive/data/1')
        archive.filelist.append(shared)
    assert why_damaged(path) == "its record 'archive/data/0' is there twice, or overlaps another one"
    data = bytearray(content())
    table = data.index(b'PK\1\2')
    data[table + 20 : table + 28] = struct.pack('<LL', 10**6, 10**6)
    assert 'is cut off' in damage_in(data)


@pytest.mark.parametrize('limit', ['ZIP64_LIMIT', 'ZIP_FILECOUNT_LIMIT'])
def test_files_that_need_large_numbers(limit, tmp_path, monkeypatch):
    monkeypatch.setattr(zipfile, limit, 0)  # zipfile then writes them into extra fields and an end record of their own
    path = rezipped(tmp_path / 'a.pth')
    data = bytearray(path.read_bytes())
    assert b'PK\6\6' in data
    assert damage_in(data) is None
    data[data.index(b'PK\6\6') + 48] ^= 1  # where the table begins
    assert damage_in(data) is not None


def test_archives_of_zipfile_are_whole_too(tmp_path):
    path = rezipped(tmp_path / 'a.pth')
    assert why_damaged(path) is None
    assert is_equal(path.read_bytes())


def test_a_file_is_read_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(integrity, 'BLOCK', 7)
    assert damage_in(content()) is None
    data = bytearray(content())
    data[data.index(b'archive/data/0FB') + 64 + 20] ^= 1
    assert damage_in(data) is not None


def test_what_a_damaged_file_says_is_escaped(tmp_path):
    def rename(info):
        info.filename = info.filename.replace('archive', '\x1b[2J\n\u202eall is well')

    path = rezipped(tmp_path / 'a.pth', rename, compression=zipfile.ZIP_DEFLATED)
    assert why_damaged(path).isprintable()
    assert 'all is well' in why_damaged(path)


def test_a_pickle_that_makes_no_sense_is_damaged(tmp_path):
    assert why_damaged(rezipped(tmp_path / 'a.pth', records={'archive/data.pkl': b'\x80\x02h\0.'})).startswith(
        'KeyError'
    )


def checkpoint(**meta):
    return {'meta': {'epoch': 1, 'iter': 5, **meta}, 'state_dict': {}}


PROBLEMS = {
    'a list': ([], 'it holds a list instead of a dict'),
    'weights': ({'w': torch.ones(1)}, "it holds no training state (there is no dict 'meta')"),
    'weights below a name': ({'state_dict': {}}, "it holds no training state (there is no dict 'meta')"),
    'another meta': ({'meta': 3, 'state_dict': {}}, "it holds no training state (there is no dict 'meta')"),
    'no weights': ({'meta': {'epoch': 1, 'iter': 5}}, 'it holds no weights (state_dict)'),
    'no counters': (
        {'meta': {'epoch': 1}, 'state_dict': {}},
        "its meta does not say how far the run was ('iter' is missing)",
    ),
    'negative': (checkpoint(epoch=-5), "its counter 'epoch' is -5, which no run can have reached"),
    'absurd': (checkpoint(iter=10**30), f"its counter 'iter' is {10**30}, which no run can have reached"),
    'more than absurd': (checkpoint(iter=10**600), "its counter 'iter' is 1"),
    'a text': (checkpoint(iter='5'), "its counter 'iter' is a str, not an integer"),
    'a fraction': (checkpoint(iter=5.5), "its counter 'iter' is a float, not an integer"),
    'not a number': (checkpoint(iter=float('nan')), "its counter 'iter' is a float, not an integer"),
    'nothing': (checkpoint(epoch=None), "its counter 'epoch' is a NoneType, not an integer"),
    'a truth': (checkpoint(epoch=True), "its counter 'epoch' is True, which no run can have reached"),
    'messages': (checkpoint(hook_msgs=[1]), "its meta's hook_msgs are no dict"),
    'a best score': (checkpoint(hook_msgs={'best_score': {}}), 'its best score is no number'),
    'two best scores': (checkpoint(hook_msgs={'best_score': torch.ones(2)}), 'its best score is no number'),
    'a length': (
        {**checkpoint(), 'runnerkit': {'ranks': [{'log_buffer': {'lengths': {'loss': -3}}}]}},
        "its state under 'runnerkit'['ranks'][0]['log_buffer']['lengths']['loss'] is -3",
    ),
    'a workflow': (
        {**checkpoint(), 'runnerkit': {'conditions': {'workflow': [1.5]}}},
        "its state under 'runnerkit'['conditions']['workflow'][0] is a float",
    ),
    'what a loader was': (
        {**checkpoint(), 'runnerkit': {'ranks': [{'readers': [None, {'about': 'x'}]}]}},
        "its state under 'runnerkit'['ranks'][0]['readers'][1]['about'] is a str",
    ),
    'state': ({**checkpoint(), 'runnerkit': 3}, "its state under 'runnerkit' is no dict"),
    'newer': (
        {**checkpoint(), 'runnerkit': {'format': 3}},
        'its state is of format 3, and this version of runnerkit reads format 2',
    ),
    'no format': ({**checkpoint(), 'runnerkit': {'format': 'new'}}, 'its state is of format new'),
}


@pytest.mark.parametrize('kind', PROBLEMS)
def test_what_no_run_can_go_on_from(kind):
    found, problem = PROBLEMS[kind]
    assert training_state_problem(found).startswith(problem)


def test_what_a_run_can_go_on_from():
    assert training_state_problem(checkpoint()) is None
    assert training_state_problem(checkpoint(epoch=0, iter=0, hook_msgs={})) is None
    for best in (-2, np.float32(0.5), torch.tensor(0.5)):
        assert training_state_problem(checkpoint(hook_msgs={'best_score': best, 'best_ckpt': None})) is None
    assert training_state_problem({**checkpoint(), 'runnerkit': {'scores': {'r': [-1, 5]}}}) is None
    assert training_state_problem({**checkpoint(iter=np.int64(5)), 'runnerkit': {}}) is None
    readers = [None, {'about': {'batches': None, 'order': 'x'}, 'samples': None, 'batches': 3, 'held': {}}]
    assert training_state_problem({**checkpoint(), 'runnerkit': {'ranks': [{'readers': readers}]}}) is None


def test_a_text_is_not_a_checkpoint(tmp_path):
    (tmp_path / 'a.pth').write_text('hello\n')
    assert why_damaged(tmp_path / 'a.pth').startswith('it is not a file of torch.save (')
