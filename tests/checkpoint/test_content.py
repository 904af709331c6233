"""Writing checkpoints."""

import sys
from types import ModuleType

import pytest
import torch
from torch import nn

from runnerkit.checkpoint import NotSavedError, _load_checkpoint, save_checkpoint
from runnerkit.version import __version__


def test_the_file_holds_mmcvs_parts(tmp_path):
    model = nn.Linear(2, 1)
    model.CLASSES = ('cat', 'dog')
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    path = tmp_path / 'deep' / 'a.pth'
    save_checkpoint(model, str(path), optimizer, meta={'epoch': 3}, state={'n': 1})
    loaded = torch.load(path, weights_only=True)
    assert set(loaded) == {'meta', 'state_dict', 'optimizer', 'runnerkit'}
    assert loaded['meta']['epoch'] == 3
    assert loaded['meta']['CLASSES'] == ('cat', 'dog')
    assert loaded['meta']['runnerkit_version'] == __version__
    assert {'time', 'mmcv_version'} <= set(loaded['meta'])
    fresh = torch.optim.Adam(model.parameters())
    fresh.load_state_dict(loaded['optimizer'])


def test_several_optimizers_by_name(tmp_path):
    model = nn.Linear(2, 1)
    optimizers = {'a': torch.optim.SGD([model.weight], lr=0.1), 'b': torch.optim.SGD([model.bias], lr=0.2)}
    save_checkpoint(model, str(tmp_path / 'a.pth'), optimizers)
    loaded = torch.load(tmp_path / 'a.pth', weights_only=True)['optimizer']
    assert {name: state['param_groups'][0]['lr'] for name, state in loaded.items()} == {'a': 0.1, 'b': 0.2}


def test_urls(tmp_path):
    save_checkpoint(nn.Linear(2, 1), f'file://{tmp_path}/a.pth')
    assert torch.load(tmp_path / 'a.pth', weights_only=True)['state_dict']['weight'].shape == (1, 2)


def test_through_a_client(tmp_path):
    model = nn.Linear(2, 1)
    save_checkpoint(model, str(tmp_path / 'disk' / 'a.pth'), file_client_args={'backend': 'disk'})
    save_checkpoint(model, 'memory://saved/a.pth')
    save_checkpoint(model, 'memory://saved/b.pth', file_client_args={'backend': 'fsspec'})
    for name in (tmp_path / 'disk' / 'a.pth', 'memory://saved/a.pth', 'memory://saved/b.pth'):
        assert torch.equal(_load_checkpoint(str(name))['state_dict']['weight'], model.weight)
    with pytest.raises(ValueError, match='Backend nowhere is not supported'):
        save_checkpoint(model, str(tmp_path / 'a.pth'), file_client_args={'backend': 'nowhere'})


def test_the_disk_by_its_name_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    save_checkpoint(nn.Linear(2, 1), str(tmp_path / 'a.pth'))
    before = (tmp_path / 'a.pth').read_bytes()

    def half(checkpoint, file):
        file.write(b'half')
        raise OSError('No space left on device')

    monkeypatch.setattr(torch, 'save', half)
    with pytest.raises(NotSavedError, match='No space'):
        save_checkpoint(nn.Linear(2, 1), str(tmp_path / 'a.pth'), file_client_args={'backend': 'disk'})
    assert (tmp_path / 'a.pth').read_bytes() == before


class Cloud:
    """The part of the private client that is called."""

    class NodeNotFoundError(Exception):
        pass

    def __init__(self, known):
        self.known, self.created, self.files = known, [], {}

    def get(self, folder):
        if folder not in self.known:
            raise self.NodeNotFoundError
        return self

    def Folder(self):
        return self

    def create_training_model(self, folder):
        self.created.append(folder)
        return self

    def create_file(self, path, name):
        self.files[name] = torch.load(path, weights_only=True)


@pytest.mark.parametrize('known, created', [(['a/b'], []), ([], ['a/b'])])
def test_into_a_model_cloud(monkeypatch, known, created):
    cloud, client = Cloud(known), ModuleType('pavi')
    client.modelcloud, client.exception = cloud, Cloud
    monkeypatch.setitem(sys.modules, 'pavi', client)
    save_checkpoint(nn.Linear(2, 1), 'pavi://a/b/c.pth', meta={'n': 1})
    assert cloud.created == created
    assert cloud.files['c.pth']['meta']['n'] == 1
    with pytest.raises(ValueError, match='file_client_args should be "None" if filename starts with "pavi://"'):
        save_checkpoint(nn.Linear(2, 1), 'pavi://a/b/c.pth', file_client_args={'backend': 'disk'})
    monkeypatch.setitem(sys.modules, 'pavi', None)
    with pytest.raises(ImportError, match='pip install pavi'):
        save_checkpoint(nn.Linear(2, 1), 'pavi://a/b/c.pth')


def test_a_wrapped_model_gives_its_classes(tmp_path):
    model = nn.Linear(2, 1)
    model.CLASSES = ['cat']
    save_checkpoint(nn.DataParallel(model), tmp_path / 'a.pth')
    loaded = torch.load(tmp_path / 'a.pth', weights_only=True)
    assert loaded['meta']['CLASSES'] == ['cat']
    assert list(loaded['state_dict']) == ['weight', 'bias']


def test_wrong_meta(tmp_path):
    with pytest.raises(TypeError, match='meta must be a dict or None'):
        save_checkpoint(nn.Linear(2, 1), str(tmp_path / 'a.pth'), meta='x')
    with pytest.raises(TypeError, match=r"meta\['x'\] holds a builtins.object"):
        save_checkpoint(nn.Linear(2, 1), str(tmp_path / 'a.pth'), meta={'x': object()})
    assert list(tmp_path.iterdir()) == []


def test_a_file_url_is_a_path(tmp_path):
    save_checkpoint(nn.Linear(2, 1), f'file://{tmp_path}/new/a.pth')
    assert [path.name for path in (tmp_path / 'new').iterdir()] == ['a.pth']


def test_what_went_wrong_with_the_disk_is_said_not_what_torch_makes_of_it(tmp_path):
    (tmp_path / 'file').touch()
    with pytest.raises(NotSavedError, match='Not a directory|File exists') as caught:
        save_checkpoint(nn.Linear(2, 1), str(tmp_path / 'file' / 'a.pth'))
    assert caught.value.filename == str(tmp_path / 'file' / 'a.pth')
    assert caught.value.errno is not None
