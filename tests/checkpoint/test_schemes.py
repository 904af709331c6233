"""Checkpoints by scheme: from a real web server, a local one of S3's kind, and stand-ins for private clients."""

import json
import sys
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch

from runnerkit.checkpoint import CheckpointLoader, _load_checkpoint, schemes
from runnerkit.checkpoint.schemes import HASH_IN_NAME

STATE = {'state_dict': {'backbone.w': torch.ones(1), 'head.w': torch.zeros(1)}}

LOADERS = {
    'http://xx.xx/xx.pth': 'load_from_http',
    'https://xx.xx/xx.pth': 'load_from_http',
    'modelzoo://x': 'load_from_torchvision',
    'torchvision://x': 'load_from_torchvision',
    'open-mmlab://x': 'load_from_openmmlab',
    'openmmlab://x': 'load_from_openmmlab',
    'mmcls://x': 'load_from_mmcls',
    'pavi://x': 'load_from_pavi',
    's3://x': 'load_from_ceph',
    'cluster:s3://x': 'load_from_ceph',
    'open-mmlab:s3://x': 'load_from_ceph',
    'ss3://x': 'load_from_local',
    ' s3://x': 'load_from_local',
    ':s3://x': 'load_from_local',
    'openmmlabs3://x': 'load_from_local',
    'a/b.pth': 'load_from_local',
}


@pytest.mark.parametrize('name', LOADERS)
def test_each_scheme_has_its_loader(name):
    assert CheckpointLoader._get_checkpoint_loader(name).__name__ == LOADERS[name]


def test_from_the_web(web, tmp_path):
    torch.save(STATE, web.folder / 'net.pth')
    assert _load_checkpoint(f'{web.url}/net.pth', 'cpu')['state_dict']['head.w'].item() == 0
    schemes.load_from_http(f'{web.url}/net.pth', model_dir=str(tmp_path / 'mine'))
    assert (tmp_path / 'mine' / 'net.pth').is_file()
    assert web.asked == ['/net.pth'] * 2


def test_one_process_of_a_machine_fetches_and_the_others_wait(on_ranks, web, tmp_path):
    torch.save(STATE, web.folder / 'net.pth')
    given = on_ranks(__file__, 'fetch', web.url, str(tmp_path / 'cache'))
    assert given == [(1.0, 'HTTPError')] * 2
    assert sorted(web.asked) == ['/missing.pth', '/missing.pth', '/net.pth']


def fetch(rank, url, cache):
    value = schemes.load_from_http(f'{url}/net.pth', model_dir=cache)['state_dict']['backbone.w'].item()
    try:
        schemes.load_from_http(f'{url}/missing.pth', model_dir=cache)
    except OSError as error:
        return value, type(error).__name__


@pytest.fixture
def own_table(web):
    """The user's own backbones: one on the web, one that is a file, one that is missing."""
    home = Path(schemes._get_mmcv_home())
    torch.save(STATE, web.folder / 'net.pth')
    torch.save({'w': torch.ones(3)}, home / 'local.pth')
    table = {
        'web': f'{web.url}/net.pth',
        'local': 'local.pth',
        'gone': 'gone.pth',
        'detectron/resnet50_caffe': 'local.pth',
    }
    (home / 'open_mmlab.json').write_text(json.dumps(table))


@pytest.mark.parametrize('scheme', ['open-mmlab', 'openmmlab'])
def test_openmmlabs_backbones(own_table, scheme):
    assert 'state_dict' in _load_checkpoint(f'{scheme}://web')
    assert _load_checkpoint(f'{scheme}://local')['w'].shape == (3,)
    with pytest.warns(Warning, match=f'{scheme}://resnet50_caffe is deprecated in favor of {scheme}://detectron/'):
        assert 'w' in _load_checkpoint(f'{scheme}://resnet50_caffe')
    with pytest.raises(FileNotFoundError, match='gone.pth cannot be found'):
        _load_checkpoint(f'{scheme}://gone')
    with pytest.raises(KeyError, match=f"no checkpoint {scheme}://resnet_v1c; did you mean 'resnet50_v1c'"):
        _load_checkpoint(f'{scheme}://resnet_v1c')


def test_classifiers_give_their_backbone(web, monkeypatch):
    torch.save(STATE, web.folder / 'net.pth')
    torch.save(STATE['state_dict'], web.folder / 'plain.pth')
    table = {'net': f'{web.url}/net.pth', 'plain': f'{web.url}/plain.pth'}
    monkeypatch.setattr(schemes, 'get_mmcls_models', lambda: table)
    for name in table:
        loaded = _load_checkpoint(f'mmcls://{name}')
        assert {key: dict(value) for key, value in loaded.items()} == {'state_dict': {'w': torch.ones(1)}}


def test_torchvisions_models(web, monkeypatch):
    torch.save(STATE, web.folder / 'net.pth')
    urls = {
        'resnet50': 'wrong',
        'resnet50.imagenet1k_v2': f'{web.url}/net.pth',
        'shufflenetv2_x0.5': f'{web.url}/net.pth',
    }
    monkeypatch.setattr(schemes, 'get_torchvision_models', lambda: urls)
    for name in ('ResNet50_Weights.IMAGENET1K_V2', 'resnet50.imagenet1k_v2', 'shufflenetv2_x0.5'):
        assert 'state_dict' in _load_checkpoint(f'torchvision://{name}')
    with pytest.warns(DeprecationWarning, match='"modelzoo://" is deprecated, please use "torchvision://"'):
        _load_checkpoint('modelzoo://shufflenetv2_x0.5')
    with pytest.raises(KeyError, match="torchvision://resnet5; did you mean 'resnet50'"):
        _load_checkpoint('torchvision://resnet5')


@pytest.fixture
def pavi(monkeypatch, tmp_path):
    """The part of the private client that is called, over a folder."""
    torch.save(STATE, tmp_path / 'model.pth')

    def download(path):
        Path(path).write_bytes((tmp_path / 'model.pth').read_bytes())

    client = ModuleType('pavi')
    client.modelcloud = SimpleNamespace(get=MagicMock(return_value=SimpleNamespace(name='m.pth', download=download)))
    monkeypatch.setitem(sys.modules, 'pavi', client)
    return client


def test_from_a_model_cloud(pavi):
    assert 'state_dict' in _load_checkpoint('pavi://folder/model')
    pavi.modelcloud.get.assert_called_with('folder/model')
    with pytest.raises(AssertionError, match='Expected filename startswith `pavi://`, but get folder/model'):
        schemes.load_from_pavi('folder/model')


@pytest.mark.parametrize('name', ['/../../stolen.pth', '..', 'a\0b', 'x' * 300])
def test_a_models_name_does_not_lead_out_of_the_temporary_folder(pavi, name, tmp_path, monkeypatch):
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    pavi.modelcloud.get.return_value.name = name
    before = set(tmp_path.rglob('*'))
    assert 'state_dict' in _load_checkpoint('pavi://folder/model')
    assert set(tmp_path.rglob('*')) == before
    assert not (tmp_path.parent / 'stolen.pth').exists()


def test_without_its_client(monkeypatch):
    monkeypatch.setitem(sys.modules, 'pavi', None)
    with pytest.raises(ImportError, match='pip install pavi'):
        _load_checkpoint('pavi://folder/model')


def test_from_s3_through_mmcvs_client_where_there_is_one(monkeypatch, tmp_path):
    torch.save(STATE, tmp_path / 'a.pth')
    library = MagicMock()
    library.client.Client.return_value.Get.return_value = (tmp_path / 'a.pth').read_bytes()
    monkeypatch.setitem(sys.modules, 'petrel_client', library)
    monkeypatch.setitem(sys.modules, 'petrel_client.client', library.client)
    monkeypatch.setattr('runnerkit.fileio.file_client.FileClient', fresh_clients())
    for name in ('s3://bucket/a.pth', 'cluster:s3://bucket/a.pth'):
        assert 'state_dict' in _load_checkpoint(name)
        assert library.client.Client.return_value.Get.call_args[0] == (name,)


def fresh_clients():
    """The class of clients without those that other tests have made."""
    from runnerkit.fileio.file_client import FileClient

    return type('FileClient', (FileClient,), {'_instances': {}})


def test_from_s3_through_fsspec(monkeypatch):
    monkeypatch.setitem(sys.modules, 'petrel_client', None)
    monkeypatch.setitem(sys.modules, 'petrel_client.client', None)
    monkeypatch.setattr('runnerkit.fileio.file_client.FileClient', fresh_clients())
    monkeypatch.setattr(schemes, 'load_from_url', lambda *args: args)
    assert _load_checkpoint('s3://bucket/a.pth', 'cpu') == ('s3://bucket/a.pth', 'cpu')
    with pytest.raises(ImportError, match='petrel_client'):
        _load_checkpoint('cluster:s3://bucket/a.pth')
    with pytest.raises(ValueError, match='Load from Backend disk is not supported'):
        schemes.load_from_ceph('s3://bucket/a.pth', backend='disk')


# --- tables ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def home(monkeypatch, tmp_path):
    monkeypatch.setenv('MMCV_HOME', str(tmp_path / 'home'))
    return tmp_path / 'home'


def test_the_tables_are_mmcvs(home):
    external, mmcls = schemes.get_external_models(), schemes.get_mmcls_models()
    assert (len(external), len(mmcls)) == (48, 57)
    assert external['msra/hrnetv2_w18'].endswith('/hrnetv2_w18-00eb2006.pth')
    assert all(url.startswith('https://') and url.endswith('.pth') for url in (*external.values(), *mmcls.values()))
    assert all(HASH_IN_NAME.search(url) for url in mmcls.values())
    new_names = schemes.get_deprecated_model_names()
    assert new_names['resnet50_caffe'] == 'detectron/resnet50_caffe'
    assert set(new_names).isdisjoint(external)


def test_the_users_own_table_has_the_last_word(home):
    home.mkdir()
    (home / 'open_mmlab.json').write_text(json.dumps({'mine': 'mine.pth', 'vgg16_caffe': 'https://over'}))
    models = schemes.get_external_models()
    assert (models['mine'], models['vgg16_caffe'], len(models)) == ('mine.pth', 'https://over', 49)


def test_the_tables_of_an_mmcv_that_is_there_come_first(monkeypatch, tmp_path, home):
    (tmp_path / 'model_zoo').mkdir()
    (tmp_path / 'model_zoo' / 'mmcls.json').write_text('{"mine": "https://mine"}')
    monkeypatch.setitem(sys.modules, 'mmcv', SimpleNamespace(__path__=[str(tmp_path)]))
    assert schemes.get_mmcls_models() == {'mine': 'https://mine'}
    assert len(schemes.get_external_models()) == 48


def test_where_the_users_folder_is(monkeypatch, tmp_path):
    for name in (schemes.ENV_MMCV_HOME, schemes.ENV_XDG_CACHE_HOME):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv('HOME', str(tmp_path))
    assert schemes._get_mmcv_home() == f'{tmp_path}/.cache/mmcv'
    assert (tmp_path / '.cache' / 'mmcv').is_dir()
    monkeypatch.setenv('XDG_CACHE_HOME', '~/xdg')
    assert schemes._get_mmcv_home() == f'{tmp_path}/xdg/mmcv'
    monkeypatch.setenv('MMCV_HOME', str(tmp_path / 'mine'))
    assert schemes._get_mmcv_home() == str(tmp_path / 'mine')


class ResNet50_Weights(Enum):
    IMAGENET1K_V1 = SimpleNamespace(url='https://zoo/resnet50-1.pth')
    IMAGENET1K_V2 = SimpleNamespace(url='https://zoo/resnet50-2.pth')
    DEFAULT = IMAGENET1K_V2

    @property
    def url(self):
        return self.value.url


class ShuffleNet_V2_X0_5_Weights(Enum):
    IMAGENET1K_V1 = SimpleNamespace(url='https://zoo/shuffle.pth')

    @property
    def url(self):
        return self.value.url


@pytest.fixture
def torchvision(monkeypatch):
    """What of torchvision's API is used (seen with torchvision 0.28: 292 names); it may not be installed here."""
    package, models = ModuleType('torchvision'), ModuleType('torchvision.models')
    weights = {'resnet50': ResNet50_Weights, 'shufflenet_v2_x0_5': ShuffleNet_V2_X0_5_Weights}
    models.list_models = lambda: list(weights)
    models.get_model_weights = weights.get
    monkeypatch.setitem(sys.modules, 'torchvision', package)
    monkeypatch.setitem(sys.modules, 'torchvision.models', models)
    return models


def test_torchvisions_weights_by_its_own_names_and_by_mmcvs(torchvision):
    urls = schemes.get_torchvision_models()
    assert urls['resnet50'] == urls['resnet50.imagenet1k_v1'] == 'https://zoo/resnet50-1.pth'
    assert urls[schemes.weights_key('ResNet50_Weights.IMAGENET1K_V2')] == 'https://zoo/resnet50-2.pth'
    assert urls['shufflenetv2_x0.5'] == urls['shufflenet_v2_x0_5'] == 'https://zoo/shuffle.pth'
    assert 'inception_v3_google' not in urls


def test_without_a_torchvision_that_has_them(torchvision, monkeypatch):
    del torchvision.list_models
    with pytest.raises(ImportError, match='needs torchvision 0.14 or later: pip install torchvision'):
        schemes.get_torchvision_models()
    monkeypatch.setitem(sys.modules, 'torchvision.models', None)
    with pytest.raises(ImportError, match='pip install torchvision'):
        schemes.get_torchvision_models()
