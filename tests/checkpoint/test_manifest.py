"""Whether a checkpoint folder is intact: every flipped bit and every missing byte is noticed."""

import json
import random
import shutil
import warnings
import zlib

import pytest
import torch
from folders import checkpoint, write
from torch.distributed import checkpoint as dcp

from runnerkit.checkpoint.atomic import MANIFEST, METADATA, is_checkpoint_folder, temporary_name
from runnerkit.checkpoint.manifest import (
    REST,
    put_in_place,
    read_manifest,
    remove_checkpoint,
    why_folder_damaged,
)


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / 'epoch_1.pth', checkpoint())
    return tmp_path / 'epoch_1.pth'


def test_a_folder_is_intact_when_it_is_written(folder):
    assert why_folder_damaged(folder) is None
    assert sorted(read_manifest(folder)) == [METADATA, '__0_0.distcp', REST]
    assert is_checkpoint_folder(folder)
    assert not is_checkpoint_folder(folder.parent)


def test_every_flipped_bit_is_noticed(folder):
    """In the manifest itself every third bit; in the others some."""
    pick = random.Random(0)
    for path in folder.iterdir():
        data = path.read_bytes()
        bits = (
            range(0, len(data) * 8, 3) if path.name == MANIFEST else [pick.randrange(len(data) * 8) for _ in range(60)]
        )
        for bit in bits:
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            assert why_folder_damaged(folder) is not None, (path.name, bit)
        path.write_bytes(data)
    assert why_folder_damaged(folder) is None


def test_what_is_missing_or_cut_off_is_named(folder):
    for name, told in {
        MANIFEST: 'it has no MANIFEST: its save was not ended',
        REST: 'its file rest.pth is missing',
        METADATA: 'its file .metadata is missing',
        '__0_0.distcp': 'its file __0_0.distcp is missing',
    }.items():
        data = (folder / name).read_bytes()
        (folder / name).unlink()
        assert why_folder_damaged(folder) == told
        (folder / name).write_bytes(data[: len(data) // 2])
        assert why_folder_damaged(folder) is not None
        (folder / name).write_bytes(data)


def test_a_folder_that_torch_alone_has_written_is_told_from_one_of_ours(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        dcp.save({'w': torch.ones(2)}, checkpoint_id=tmp_path / 'epoch_1.pth')
    assert is_checkpoint_folder(tmp_path / 'epoch_1.pth')
    assert why_folder_damaged(tmp_path / 'epoch_1.pth') == 'it has no MANIFEST: it is not of runnerkit, or not complete'


def test_a_manifest_of_a_later_version_is_not_called_damaged(folder, monkeypatch):
    monkeypatch.setattr('runnerkit.checkpoint.manifest._FORMAT', 2)
    write(folder.parent / 'later.pth', checkpoint())
    monkeypatch.undo()
    assert why_folder_damaged(folder.parent / 'later.pth') == 'its format is 2, and this version of runnerkit reads 1'


def test_a_manifest_names_files_of_its_folder_only(folder):
    text = json.dumps({'format': 1, 'files': {'../x': [0, 0], METADATA: [0, 0], REST: [0, 0]}}, indent=1) + '\n'
    (folder / MANIFEST).write_text(f'{text}{zlib.crc32(text.encode()):08x}\n')
    assert why_folder_damaged(folder) == 'its MANIFEST names ../x'


def test_a_folder_is_removed_with_its_own_files_only(folder):
    (folder / 'notes.txt').write_text('mine')
    with pytest.raises(OSError, match=r'none of a checkpoint, such as notes\.txt: move them elsewhere'):
        remove_checkpoint(folder)
    assert why_folder_damaged(folder) is None
    (folder / 'notes.txt').unlink()
    assert remove_checkpoint(folder)
    assert not folder.exists()
    assert not remove_checkpoint(folder)


def test_a_folder_takes_the_place_of_a_file_or_of_another_folder(folder):
    for former in ('a folder', 'a file', 'nothing'):
        if former == 'a file':
            shutil.rmtree(folder)
            folder.write_text('old')
        elif former == 'nothing':
            shutil.rmtree(folder)
        temporary = folder.with_name(temporary_name(folder.name))
        write(temporary, checkpoint(7))
        put_in_place(temporary, folder)
        assert why_folder_damaged(folder) is None
        assert not temporary.exists()
