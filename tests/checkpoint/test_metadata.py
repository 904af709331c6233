"""The table of contents of torch.distributed.checkpoint is read without running code from it."""

import pickle
import warnings
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import metadata as tables
from torch.distributed.checkpoint.filesystem import _StorageInfo

from runnerkit.checkpoint.metadata import METADATA, read_metadata


@pytest.fixture(scope='module')
def saved(tmp_path_factory):
    """What torch itself has written: its table, and the sizes of its files."""
    folder = tmp_path_factory.mktemp('dcp')
    state = {'w': torch.randn(3, 4), 'h': {'b': torch.ones(2).bfloat16(), 'one': torch.tensor(3.0)}}
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        dcp.save(state, checkpoint_id=folder, no_dist=True)
    return (folder / METADATA).read_bytes(), {path.name: path.stat().st_size for path in folder.iterdir()}


def test_a_table_of_torchs_is_read_as_torch_reads_it(saved):
    data, sizes = saved
    ours, theirs = read_metadata(data, sizes), pickle.loads(data)
    for name, entry in theirs.state_dict_metadata.items():
        found = ours.state_dict_metadata[name]
        assert (found.size, found.chunks) == (entry.size, entry.chunks)
        assert found.properties.dtype == entry.properties.dtype
    assert ours.storage_data == theirs.storage_data


class Runs:
    """What pickle would run when it reads it."""

    def __init__(self, call, *args):
        self.call, self.args = call, args

    def __reduce__(self):
        return self.call, self.args


def attacks(target):
    """Objects that write the file ``target`` when pickle reads them."""
    yield Runs(Path.touch, target)
    yield Runs(eval, f'open({str(target)!r}, "w")')
    yield OrderedDict([(Runs(open, target, 'w'), 1)])
    yield tables.Metadata({'w': Runs(Path.touch, target)})
    yield Runs(torch.load, target)
    yield Runs(torch.hub.load, target)


def test_no_code_of_a_table_is_run(tmp_path):
    target = tmp_path / 'it ran'
    for attack in attacks(target):
        with pytest.raises(ValueError, match=r'\.metadata: it names'):
            read_metadata(pickle.dumps(attack))
        assert not target.exists()
        if attack.__reduce__()[0] not in (torch.load, torch.hub.load):
            pickle.loads(pickle.dumps(attack))  # as torch reads it
            assert target.exists()
            target.unlink()


def test_a_table_cannot_change_what_later_ones_are_read_with(saved):
    """BUILD on a class sets its attributes."""
    data, sizes = saved
    module = b'ctorch.distributed.checkpoint.metadata\n'
    spoiled = module + b"Metadata\n(}(S'__getitem__'\nNS'args'\nNdtb0" + module + b'Metadata\n.'
    try:
        read_metadata(spoiled)
    except ValueError:
        pass
    assert read_metadata(data, sizes).state_dict_metadata
    assert tables.Metadata({}).storage_data is None


def table(size=(2,), offsets=(0,), sizes=(2,), dtype=torch.float32, file='f', length=2000, index=(0,), **info):
    chunk = tables.ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))
    entry = tables.TensorStorageMetadata(tables.TensorProperties(dtype), torch.Size(size), [chunk])
    place = _StorageInfo(file, info.get('offset', 0), length, info.get('transforms'))
    return tables.Metadata({'w': entry}, storage_data={tables.MetadataIndex('w', index): place})


WRONG = {
    'another file': (dict(file='../f'), 'not in its folder'),
    'an absolute file': (dict(file='/etc/passwd'), 'not in its folder'),
    'a file that is not there': (dict(file='g'), 'not there'),
    'beyond the end': (dict(offset=10), 'not there'),
    'before the start': (dict(offset=-1), 'number of bytes'),
    'more than its bytes': (dict(size=(10**9,), sizes=(10**9,)), 'does not lie in it, or in its file'),
    'beyond the tensor': (dict(offsets=(1,), index=(1,)), 'does not lie in it'),
    'a hole': (dict(size=(3,)), 'parts .* are missing'),
    'nowhere': (dict(index=(5,)), 'does not lie in it, or in its file'),
    'encrypted': (dict(transforms=['zip']), 'compressed or encrypted'),
    'a huge tensor without parts': (
        dict(size=(10**15, 0), offsets=(0, 0), sizes=(10**15, 1), index=(0, 0)),
        'does not',
    ),
}


@pytest.mark.parametrize('name', WRONG)
def test_a_table_that_contradicts_itself_or_the_files_is_refused(name):
    changes, told = WRONG[name]
    assert read_metadata(pickle.dumps(table()), {'f': 2000})
    with pytest.raises(ValueError, match=told):
        read_metadata(pickle.dumps(table(**changes)), {'f': 2000})


def in_parts(*parts, size=(4, 4)):
    chunks = [tables.ChunkStorageMetadata(torch.Size(begin), torch.Size(sizes)) for begin, sizes in parts]
    entry = tables.TensorStorageMetadata(tables.TensorProperties(torch.float32), torch.Size(size), chunks)
    places = {tables.MetadataIndex('w', begin): _StorageInfo('f', 0, 2000) for begin, _ in parts}
    return pickle.dumps(tables.Metadata({'w': entry}, storage_data=places))


def test_parts_lie_side_by_side():
    """As many numbers as the tensor has may still leave some out, which would be whatever was in the memory."""
    rows = [((0, 0), (3, 4)), ((3, 0), (1, 4)), ((4, 0), (0, 4))]
    tiles = [((0, 0), (2, 2)), ((2, 0), (2, 3)), ((0, 2), (2, 2)), ((2, 3), (2, 1))]
    for parts in (rows, rows[::-1], tiles):
        assert len(read_metadata(in_parts(*parts), {'f': 2000}).state_dict_metadata['w'].chunks) == len(parts)
    assert read_metadata(in_parts(((), ()), size=()), {'f': 2000})
    twice = [((0, 0), (2, 4)), ((0, 0), (2, 4))]
    crossed = [((0, 0), (2, 2)), ((2, 0), (2, 2)), ((0, 2), (3, 2)), ((1, 3), (2, 1))]
    for parts in (twice, crossed):
        with pytest.raises(ValueError, match="parts of 'w' overlap"):
            read_metadata(in_parts(*parts), {'f': 2000})


@pytest.mark.parametrize('found', [None, 3, [], {'w': 1}, tables.Metadata(None), tables.Metadata({'w': 3}, None, {})])
def test_what_is_no_table_is_refused(found):
    with pytest.raises(ValueError, match=r'\.metadata: it'):
        read_metadata(pickle.dumps(found))


def test_every_damaged_table_is_refused_or_read_without_an_accident(saved):
    """Any byte may be another one: it is a ValueError, or still a table whose tensors lie in their files."""
    data, sizes = saved
    refused = 0
    for position in range(0, len(data), 3):
        try:
            read_metadata(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :], sizes)
        except ValueError:
            refused += 1
    assert refused > 100
