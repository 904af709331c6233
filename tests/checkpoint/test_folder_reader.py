"""Reading checkpoint folders: what is read is checked, and no code in them runs."""

import io
import os
import pickle
import random
import shutil
from contextlib import nullcontext

import pytest
import torch
from folders import checkpoint, same, write
from torch.distributed import checkpoint as dcp

from runnerkit.checkpoint import load_checkpoint
from runnerkit.checkpoint.convert import convert_checkpoint
from runnerkit.checkpoint.folder_reader import read_folder, read_rest
from runnerkit.checkpoint.loader import _load_checkpoint, find_checkpoint, load_folder
from runnerkit.checkpoint.manifest import (
    MANIFEST,
    REST,
    SAVE,
    listed_as,
    mark,
    read_manifest,
    why_folder_damaged,
    write_manifest,
)
from runnerkit.checkpoint.metadata import METADATA


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / 'epoch_1.pth', checkpoint())
    return tmp_path / 'epoch_1.pth'


def relisted(folder):
    """Whoever alters a file on purpose alters the manifest too."""
    files = {path.name: listed_as(path) for path in folder.iterdir() if path.name != MANIFEST}
    write_manifest(folder, files, read_manifest(folder).save)


def test_only_what_is_wanted_is_read(folder, monkeypatch):
    found = read_folder(folder, wanted=lambda place: place == ('state_dict', 'w'))
    assert torch.equal(found['state_dict']['w'], checkpoint()['state_dict']['w'])
    assert found['state_dict']['b'] is None
    assert found['optimizer']['state'][0]['exp_avg'] is None
    assert read_rest(folder)['meta'] == checkpoint()['meta']


def test_a_damaged_byte_is_noticed_by_whoever_reads_it(folder):
    """Without reading the files of other processes: by the checksums within the parts that are read."""
    part, whole = folder / '__0_0.distcp', checkpoint()
    data, pick = part.read_bytes(), random.Random(1)
    for _ in range(80):
        bit = pick.randrange(len(data) * 8)
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        part.write_bytes(changed)
        try:
            found = read_folder(folder)
        except ValueError:
            continue
        assert same(found, whole)  # a bit that means nothing, such as that of a time
    part.write_bytes(data)
    for name in (METADATA, REST, MANIFEST):
        data = (folder / name).read_bytes()
        for _ in range(20):
            bit = pick.randrange(len(data) * 8)
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            (folder / name).write_bytes(changed)
            try:
                found = read_folder(folder)
            except ValueError:
                continue
            assert name == REST
            assert same(found, whole)
        (folder / name).write_bytes(data)


class Runs:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize('lists', [False, True], ids=['', 'and a manifest that fits'])
@pytest.mark.parametrize(
    'taken', [['__0_0.distcp'], [REST], [METADATA], [MANIFEST], [MANIFEST, '__0_0.distcp'], [MANIFEST, REST, METADATA]]
)
def test_files_of_two_saves_are_never_mixed(tmp_path, taken, lists):
    """Of the same run, and of the same size: weights of two moments, which nothing else would notice."""
    first, second = tmp_path / 'epoch_1.pth', tmp_path / 'epoch_2.pth'
    write(first, checkpoint(3))
    write(second, checkpoint(4))
    sizes = [{path.name: path.stat().st_size for path in folder.iterdir()} for folder in (first, second)]
    assert [sizes[0][name] for name in taken if name != MANIFEST] == [sizes[1][n] for n in taken if n != MANIFEST]
    for name in taken:
        shutil.copy(first / name, second / name)
    if lists:
        relisted(second)
    assert lists or why_folder_damaged(second) is not None
    for read in (
        read_folder,
        lambda folder: read_folder(folder, wanted=lambda place: place == ('state_dict', 'w')),
        lambda folder: load_checkpoint(torch.nn.Linear(1, 1), str(folder)),
        lambda folder: convert_checkpoint(folder, tmp_path / 'whole.pth'),
    ):
        with pytest.raises(ValueError, match=r'another save than its MANIFEST|its .metadata is damaged|bytes instead'):
            read(second)
    if REST in taken or MANIFEST in taken:
        with (
            pytest.raises(ValueError, match='another save') if (REST in taken) != (MANIFEST in taken) else nullcontext()
        ):
            read_rest(second)
    assert same(read_folder(first), checkpoint(3))
    assert list(tmp_path.glob('whole*')) == []


def test_folders_without_an_id_are_read_as_before(folder):
    """Those of runnerkit before there was one."""
    end = mark(read_manifest(folder).save)
    part, rest = folder / '__0_0.distcp', torch.load(folder / REST)
    assert part.read_bytes().endswith(end)
    part.write_bytes(part.read_bytes().removesuffix(end))
    del rest[SAVE]
    torch.save(rest, folder / REST)
    table = pickle.loads((folder / METADATA).read_bytes())
    table.storage_meta.save_id = None
    for meta in (table.storage_meta, None):
        table.storage_meta = meta
        (folder / METADATA).write_bytes(pickle.dumps(table))
        write_manifest(folder, {path.name: listed_as(path) for path in folder.iterdir() if path.name != MANIFEST})
        assert why_folder_damaged(folder) is None
        assert same(read_folder(folder), checkpoint())


@pytest.mark.filterwarnings('ignore:torch.distributed is disabled')
def test_torch_reads_the_parts_behind_which_the_id_is(folder):
    found = {'state_dict.w': torch.zeros(5, 3)}
    dcp.load(found, checkpoint_id=folder, no_dist=True)
    assert torch.equal(found['state_dict.w'], checkpoint()['state_dict']['w'])


def test_no_code_in_any_file_is_run(folder, tmp_path):
    """Where torch's own reader runs it: in the table of contents, and in what is no tensor."""
    target, whole = tmp_path / 'it ran', {path.name: path.read_bytes() for path in folder.iterdir()}
    attack = Runs(target)
    saved = io.BytesIO()
    torch.save(attack, saved)
    for name, data in ((METADATA, pickle.dumps(attack)), (REST, saved.getvalue())):
        (folder / name).write_bytes(data)
        relisted(folder)
        with pytest.raises(ValueError, match='posix.mkdir'):
            _load_checkpoint(folder)
        (folder / name).write_bytes(whole[name])
    # A tensor's part is replaced by an object, of the same length.
    table = pickle.loads(whole[METADATA])
    index, place = next(iter(table.storage_data.items()))
    end = mark(read_manifest(folder).save)
    (folder / '__0_0.distcp').write_bytes(whole['__0_0.distcp'] + saved.getvalue() + end)
    table.storage_data[index] = type(place)(place.relative_path, len(whole['__0_0.distcp']), len(saved.getvalue()))
    (folder / METADATA).write_bytes(pickle.dumps(table))
    relisted(folder)
    with pytest.raises(ValueError, match='posix.mkdir'):
        _load_checkpoint(folder)
    assert not target.exists()
    torch.load(io.BytesIO(saved.getvalue()), weights_only=False)
    assert target.exists()


def test_an_object_in_the_place_of_a_tensor_is_refused(folder):
    table = pickle.loads((folder / METADATA).read_bytes())
    table.state_dict_metadata['state_dict.w'] = dcp.metadata.BytesStorageMetadata()
    (folder / METADATA).write_bytes(pickle.dumps(table))
    relisted(folder)
    with pytest.raises(ValueError, match=r"its tensor 'state_dict.w' is missing"):
        read_folder(folder)


def test_a_damaged_folder_says_what_to_do(folder):
    (folder / '__0_0.distcp').unlink()
    with pytest.raises(ValueError, match=r'epoch_1.pth cannot be read: its file __0_0.distcp is missing. Use an'):
        load_folder(folder, folder)


def test_weights_are_loaded_from_a_folder_as_from_a_file(tmp_path):
    torch.manual_seed(0)
    model, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    write(tmp_path / 'epoch_2.pth', {'meta': {}, 'state_dict': model.state_dict(), 'optimizer': {'state': {}}})
    (tmp_path / 'latest.pth').symlink_to('epoch_2.pth')
    for path in (tmp_path, tmp_path / 'latest.pth', tmp_path / 'epoch_2.pth'):
        loaded = load_checkpoint(other, path, strict=True)
        assert 'optimizer' not in loaded  # which only a resumed run needs
        assert torch.equal(other.weight, model.weight)
        assert find_checkpoint(path).endswith('.pth')
        torch.nn.init.zeros_(other.weight)
    half = load_checkpoint(other, tmp_path, map_location=lambda storage, where: storage)
    assert torch.equal(half['state_dict']['weight'], model.weight)
