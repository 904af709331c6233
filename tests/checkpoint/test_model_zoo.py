"""Tables of pretrained models."""

import json
import sys
from enum import Enum
from types import ModuleType, SimpleNamespace

import pytest

from runnerkit.checkpoint import model_zoo
from runnerkit.checkpoint.hub import HASH_IN_NAME


@pytest.fixture
def home(monkeypatch, tmp_path):
    monkeypatch.setenv('MMCV_HOME', str(tmp_path / 'home'))
    return tmp_path / 'home'


def test_the_tables_are_mmcvs(home):
    external, mmcls = model_zoo.get_external_models(), model_zoo.get_mmcls_models()
    assert (len(external), len(mmcls)) == (48, 57)
    assert external['msra/hrnetv2_w18'].endswith('/hrnetv2_w18-00eb2006.pth')
    assert all(url.startswith('https://') and url.endswith('.pth') for url in (*external.values(), *mmcls.values()))
    assert all(HASH_IN_NAME.search(url) for url in mmcls.values())
    new_names = model_zoo.get_deprecated_model_names()
    assert new_names['resnet50_caffe'] == 'detectron/resnet50_caffe'
    assert set(new_names).isdisjoint(external)


def test_the_users_own_table_has_the_last_word(home):
    home.mkdir()
    (home / 'open_mmlab.json').write_text(json.dumps({'mine': 'mine.pth', 'vgg16_caffe': 'https://over'}))
    models = model_zoo.get_external_models()
    assert (models['mine'], models['vgg16_caffe'], len(models)) == ('mine.pth', 'https://over', 49)


def test_the_tables_of_an_mmcv_that_is_there_come_first(monkeypatch, tmp_path, home):
    (tmp_path / 'model_zoo').mkdir()
    (tmp_path / 'model_zoo' / 'mmcls.json').write_text('{"mine": "https://mine"}')
    monkeypatch.setitem(sys.modules, 'mmcv', SimpleNamespace(__path__=[str(tmp_path)]))
    assert model_zoo.get_mmcls_models() == {'mine': 'https://mine'}
    assert len(model_zoo.get_external_models()) == 48


def test_where_the_users_folder_is(monkeypatch, tmp_path):
    for name in (model_zoo.ENV_MMCV_HOME, model_zoo.ENV_XDG_CACHE_HOME):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv('HOME', str(tmp_path))
    assert model_zoo._get_mmcv_home() == f'{tmp_path}/.cache/mmcv'
    assert (tmp_path / '.cache' / 'mmcv').is_dir()
    monkeypatch.setenv('XDG_CACHE_HOME', '~/xdg')
    assert model_zoo._get_mmcv_home() == f'{tmp_path}/xdg/mmcv'
    monkeypatch.setenv('MMCV_HOME', str(tmp_path / 'mine'))
    assert model_zoo._get_mmcv_home() == str(tmp_path / 'mine')


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
    urls = model_zoo.get_torchvision_models()
    assert urls['resnet50'] == urls['resnet50.imagenet1k_v1'] == 'https://zoo/resnet50-1.pth'
    assert urls[model_zoo.weights_key('ResNet50_Weights.IMAGENET1K_V2')] == 'https://zoo/resnet50-2.pth'
    assert urls['shufflenetv2_x0.5'] == urls['shufflenet_v2_x0_5'] == 'https://zoo/shuffle.pth'
    assert 'inception_v3_google' not in urls


def test_without_a_torchvision_that_has_them(torchvision, monkeypatch):
    del torchvision.list_models
    with pytest.raises(ImportError, match='needs torchvision 0.14 or later: pip install torchvision'):
        model_zoo.get_torchvision_models()
    monkeypatch.setitem(sys.modules, 'torchvision.models', None)
    with pytest.raises(ImportError, match='pip install torchvision'):
        model_zoo.get_torchvision_models()
