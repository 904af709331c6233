"""Reading checkpoints: schemes, safety, clear refusals."""

import io
import json
import logging
import os
import pickle
import struct
import sys

import numpy as np
import pytest
import torch
from support import tiny_runner

from runnerkit.checkpoint import CheckpointLoader, _load_checkpoint, _load_checkpoint_with_prefix, load_checkpoint
from runnerkit.checkpoint.loader import find_checkpoint, load_from_local, load_whole


class Evil:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def test_numpy_scalars_and_arrays_of_old_files_load(tmp_path):
    meta = {
        'hook_msgs': {'best_score': np.float64(0.5)},
        'PALETTE': np.arange(6, dtype=np.uint8).reshape(2, 3),
        'n': np.int32(3),
    }
    torch.save({'meta': meta, 'state_dict': {}}, tmp_path / 'old.pth')
    loaded = _load_checkpoint(str(tmp_path / 'old.pth'))
    assert loaded['meta']['hook_msgs']['best_score'] == 0.5
    assert loaded['meta']['PALETTE'].tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize('zipped', [True, False])
def test_code_in_a_file_is_never_run(tmp_path, zipped):
    path = tmp_path / 'evil.pth'
    torch.save({'state_dict': Evil(tmp_path / 'ran')}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(ValueError, match='could run code when loaded, so it was not loaded'):
        _load_checkpoint(str(path))
    assert not (tmp_path / 'ran').exists()
    with open(path, 'wb') as file:
        pickle.dump(Evil(tmp_path / 'ran'), file)
    with pytest.raises(ValueError, match='not loaded|damaged'):
        _load_checkpoint(str(path))
    assert not (tmp_path / 'ran').exists()


def test_a_file_of_another_kind_is_no_question_of_trust(tmp_path):
    path = tmp_path / 'cfg.py'
    path.write_text('model = dict()')
    with pytest.raises(ValueError, match="cfg.py is not a checkpoint: it begins with b'model = '"):
        _load_checkpoint(path)


def test_what_a_file_names_is_escaped(tmp_path, caplog):
    name = '\x1b[2J\u202eevil'
    torch.save({'x': Evil}, tmp_path / 'evil.pth', _use_new_zipfile_serialization=False)
    data = (tmp_path / 'evil.pth').read_bytes()
    (tmp_path / 'evil.pth').write_bytes(data.replace(f'{__name__}\nEvil\n'.encode(), f'{name}\nEvil\n'.encode()))
    with pytest.raises(ValueError, match='could run code') as caught:
        _load_checkpoint(tmp_path / 'evil.pth')
    assert r'(\x1b[2J\u202eevil.Evil)' in str(caught.value)
    assert caught.value.__cause__ is None
    torch.save({f'{name}.w': torch.ones(1)}, tmp_path / 'a.pth')
    with pytest.raises(AssertionError, match=r'it has \\x1b\[2J\\u202eevil$'):
        _load_checkpoint_with_prefix('neck', tmp_path / 'a.pth')
    with caplog.at_level(logging.INFO, 'somebody'), pytest.raises(FileNotFoundError):
        _load_checkpoint(f'{tmp_path}/{name}', logger=logging.getLogger('somebody'))
    assert name not in caplog.text


def test_a_missing_file_answers_with_the_nearest(tmp_path):
    torch.save({}, tmp_path / 'epoch_12.pth')
    with pytest.raises(FileNotFoundError, match='epoch_21.pth cannot be found; did you mean .epoch_12.pth'):
        _load_checkpoint(str(tmp_path / 'epoch_21.pth'))
    with pytest.raises(FileNotFoundError, match='no checkpoint nowhere/x.pth: .*/nowhere/x.pth cannot be found$'):
        _load_checkpoint('nowhere/x.pth')
    (tmp_path / 'latest.pth').symlink_to('epoch_13.pth')
    with pytest.raises(FileNotFoundError, match='latest.pth cannot be found; its folder holds epoch_12.pth$'):
        _load_checkpoint(str(tmp_path / 'latest.pth'))


def test_a_folder_stands_for_its_best_checkpoint_wherever_one_is_loaded(tmp_path):
    torch.save({'n': 1, 'a.w': 1}, tmp_path / 'epoch_12.pth')
    assert _load_checkpoint(str(tmp_path)) == {'n': 1, 'a.w': 1}
    torch.save({'n': 2, 'a.w': 2}, tmp_path / 'best_acc_epoch_7.pth')
    assert _load_checkpoint(tmp_path)['n'] == _load_checkpoint(f'file://{tmp_path}')['n'] == 2
    assert _load_checkpoint_with_prefix('a', str(tmp_path)) == {'w': 2}
    (tmp_path / 'other').mkdir()
    torch.save({}, tmp_path / 'other' / 'weights.pth')
    with pytest.raises(
        FileNotFoundError, match=r'no checkpoint in .*/other .*; it holds weights.pth: name one of them$'
    ):
        _load_checkpoint(tmp_path / 'other')


def test_what_is_to_be_loaded_can_be_looked_for_first(tmp_path):
    torch.save({}, tmp_path / 'epoch_12.pth')
    assert find_checkpoint(tmp_path) == find_checkpoint(tmp_path / 'epoch_12.pth') == str(tmp_path / 'epoch_12.pth')
    assert find_checkpoint('torchvision://resnet50') == 'torchvision://resnet50'
    assert find_checkpoint('memory://nowhere/x.pth') == 'memory://nowhere/x.pth'  # only its storage can tell
    with pytest.raises(FileNotFoundError, match="cannot be found; did you mean 'epoch_12.pth'"):
        find_checkpoint(tmp_path / 'epoch_1.pth')


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / 'a.pth'
    torch.save({'w': torch.ones(1000)}, path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match='is damaged: the checksum'):
        _load_checkpoint(str(path))


def test_where_tensors_cannot_go_is_no_damage(tmp_path):
    torch.save({'w': torch.ones(3)}, tmp_path / 'a.pth')

    def nowhere(storage, location):
        raise RuntimeError('no such device')

    with pytest.raises(RuntimeError, match='no such device'):
        _load_checkpoint(str(tmp_path / 'a.pth'), map_location=nowhere)


def test_what_a_resume_reads_stays_when_the_file_changes(tmp_path):
    """A module may keep what it is given, as torchmetrics do: nothing of it is left in the file."""
    path, weight = tmp_path / 'a.pth', torch.arange(40000.0)
    torch.save({'state_dict': {'w': weight, 'sparse': torch.eye(9).to_sparse()}, 'part': weight[10000:]}, path)
    found = load_whole(str(path))
    with path.open('r+b') as file:
        file.write(bytes(path.stat().st_size))
    assert torch.equal(found['state_dict']['w'], weight)
    assert torch.equal(found['state_dict']['sparse'].to_dense(), torch.eye(9))
    found['part'] += 1
    assert torch.equal(found['state_dict']['w'][10000:], weight[10000:] + 1)


def test_urls_are_read_through_fsspec(tmp_path):
    import fsspec

    with fsspec.open('memory://checkpoints/a.pth', 'wb') as file:
        torch.save({'state_dict': {'w': torch.ones(2)}}, file)
    assert _load_checkpoint('memory://checkpoints/a.pth')['state_dict']['w'].tolist() == [1, 1]


def test_own_schemes(monkeypatch):
    monkeypatch.setattr(CheckpointLoader, '_schemes', dict(CheckpointLoader._schemes))

    @CheckpointLoader.register_scheme('lab://')
    def from_lab(filename, map_location=None):
        return filename, map_location

    assert _load_checkpoint('lab://x', 'cpu') == ('lab://x', 'cpu')
    with pytest.raises(KeyError, match='lab:// is already registered'):
        CheckpointLoader.register_scheme('lab://', from_lab)
    CheckpointLoader.register_scheme(['lab://', 'labs://'], lambda name, map_location=None: 'new', force=True)
    assert _load_checkpoint('labs://x') == 'new'
    CheckpointLoader.register_scheme(('a/b/c', 'a/b'), lambda name, map_location=None: 'folder')
    CheckpointLoader.register_scheme('a/b/c', lambda name, map_location=None: 'deeper', force=True)
    assert (_load_checkpoint('a/b/x'), _load_checkpoint('a/b/c/x')) == ('folder', 'deeper')
    with pytest.raises(AssertionError, match='prefixes must be a string, or a list or tuple of them, but got 3'):
        CheckpointLoader.register_scheme(3, from_lab)


def test_a_scheme_that_is_taken_leaves_its_neighbours_alone(monkeypatch):
    monkeypatch.setattr(CheckpointLoader, '_schemes', dict(CheckpointLoader._schemes))
    before = dict(CheckpointLoader._schemes)
    with pytest.raises(KeyError):
        CheckpointLoader.register_scheme(('new://', 'https://'), print)
    assert CheckpointLoader._schemes == before


def test_where_it_comes_from_is_logged(tmp_path, caplog):
    torch.save({}, tmp_path / 'a.pth')
    logger = logging.getLogger('somebody')
    with caplog.at_level(logging.INFO, 'somebody'):
        _load_checkpoint(tmp_path / 'a.pth', logger=logger)
        CheckpointLoader.load_checkpoint(str(tmp_path / 'a.pth'), 'cpu')
    assert [record.message for record in caplog.records] == [f'load checkpoint from local path: {tmp_path}/a.pth']


def test_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    torch.save({'x': 1}, tmp_path / 'a.pth')
    assert load_from_local('~/a.pth') == {'x': 1}


def test_one_submodules_weights(tmp_path):
    path = str(tmp_path / 'a.pth')
    names = ('backbone.conv.w', 'head.w', 'backbone2.w', 'old.backbone.w')
    torch.save({'state_dict': {name: torch.ones(1) for name in names}}, path)
    assert list(_load_checkpoint_with_prefix('backbone', path)) == ['conv.w']
    with pytest.raises(
        AssertionError, match='neck is not in the pretrained model .*; it has backbone, backbone2, head, old'
    ):
        _load_checkpoint_with_prefix('neck', path)
    torch.save([1], path)
    with pytest.raises(RuntimeError, match='No state_dict found in checkpoint file .*a.pth: it holds a list'):
        _load_checkpoint_with_prefix('neck', path)


def test_a_damaged_file_from_elsewhere_is_refused():
    import fsspec

    buffer = io.BytesIO()
    torch.save({'w': torch.ones(1000)}, buffer)
    data = bytearray(buffer.getvalue())
    data[len(data) // 2] ^= 1
    with fsspec.open('memory://damaged.pth', 'wb') as file:
        file.write(data)
    with pytest.raises(ValueError, match='the checkpoint memory://damaged.pth is damaged: the checksum'):
        _load_checkpoint('memory://damaged.pth')


def safetensors_file(path, value=1.0):
    """A file of one weight ``head.w``, two numbers, written by hand as the format says."""
    header = json.dumps({'head.w': {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 8]}}).encode()
    path.write_bytes(struct.pack('<Q', len(header)) + header + struct.pack('<2f', value, value))
    return path


@pytest.mark.parametrize(
    'place', [None, 'cpu', 'meta', torch.device('cpu'), {'cpu': 'cpu'}, lambda storage, _: storage]
)
def test_safetensors_are_weights(tmp_path, place):
    pytest.importorskip('safetensors')
    found = _load_checkpoint(str(safetensors_file(tmp_path / 'a.safetensors')), place)
    assert list(found) == ['head.w']
    assert found['head.w'].is_meta if place == 'meta' else found['head.w'].tolist() == [1, 1]


def test_safetensors_load_into_models_by_every_way(tmp_path):
    pytest.importorskip('safetensors')
    import fsspec

    path = safetensors_file(tmp_path / 'a.safetensors', 3.0)
    with fsspec.open('memory://a.safetensors', 'wb') as file:
        file.write(path.read_bytes())
    for name in (path, 'memory://a.safetensors'):
        model = torch.nn.ModuleDict({'head': torch.nn.Module()})
        model['head'].w = torch.nn.Parameter(torch.zeros(2))
        load_checkpoint(model, name)
        assert model['head'].w.tolist() == [3, 3]
    assert _load_checkpoint_with_prefix('head', str(path))['w'].tolist() == [3, 3]
    with pytest.raises(ValueError, match='cannot be resumed: it holds no training state'):
        tiny_runner(max_epochs=1).resume(str(path))


def test_damaged_safetensors_are_refused(tmp_path):
    pytest.importorskip('safetensors')
    path = safetensors_file(tmp_path / 'a.safetensors')
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match='a.safetensors is damaged: '):
        _load_checkpoint(str(path))


def test_safetensors_name_the_package_they_need(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'safetensors', None)
    with pytest.raises(ImportError, match='a.safetensors needs the package safetensors: pip install safetensors'):
        _load_checkpoint(str(safetensors_file(tmp_path / 'a.safetensors')))
