"""Configs in the meta of checkpoints: nothing in them is executed or imported."""

import sys
from pathlib import Path

import pytest
import torch
from installed import install

from runnerkit.config import Config
from runnerkit.flow.use.untrusted import config_in
from runnerkit.flow.work_dir.made_here import seal
from runnerkit.flow.work_dir.previous_runs import write_record
from runnerkit.nn import MODELS, Supervised
from runnerkit.registry import Registry

CODE = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\nfrom torch.nn import Linear as Net\n"


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """A folder on the path with modules that leave a file behind if they are executed, and one check for it."""
    for name in ('evil.py', 'package/__init__.py', 'package/evil.py'):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    assert not list(tmp_path.rglob('*.ran'))
    assert not {'evil', 'package', 'package.evil'} & set(sys.modules)


#: Models and imports of configs, and what the refusal names.
NAMES_CODE = {
    'import': ("custom_imports = dict(imports=['evil'])", "custom_imports 'evil'"),
    'import as text': ("custom_imports = dict(imports='evil')", "custom_imports 'evil'"),
    'import of a file': ("custom_imports = dict(imports=['{folder}/evil.py'])", 'evil.py'),
    'import, forgiving': (
        "custom_imports = dict(imports=['evil'], allow_failed_imports=True)",
        "custom_imports 'evil'",
    ),
    'list for imports': ("custom_imports = ['evil']", "custom_imports 'evil'"),
    'number for imports': ('custom_imports = 3', 'custom_imports 3'),
    'number for import': ('custom_imports = dict(imports=3)', 'custom_imports 3'),
    'no name for an import': ('custom_imports = dict(imports=[3])', 'custom_imports 3'),
    'dotted': ("model = dict(type='evil.Net')", "type 'evil.Net'"),
    'dotted deep': ("model = dict(type='package.evil.Net')", "type 'package.evil.Net'"),
    'file': ("model = dict(type='{folder}/evil.py:Net')", 'evil.py:Net'),
    'file from here': ("model = dict(type='evil.py:Net')", "type 'evil.py:Net'"),
    'built-in': ("model = dict(type='os.system', command='touch {folder}/evil.ran')", "type 'os.system'"),
    'builtins': ("model = dict(type='builtins.exec')", "type 'builtins.exec'"),
    'class of torch': ("model = dict(type='torch.nn.Module.__subclasses__')", '__subclasses__'),
    'function in torch.nn': ("model = dict(type='torch.nn.Parameter')", "type 'torch.nn.Parameter'"),
    'function of torch': ("model = dict(type='torch.hub.load')", "type 'torch.hub.load'"),
    'in a list': ("model = [dict(type='Linear', in_features=1, out_features=1), dict(type='evil.Net')]", 'evil.Net'),
    'in a tuple': ("model = (dict(type='evil.Net'),)", 'evil.Net'),
    'nested': ("model = dict(type='Supervised', model=dict(type='evil.Net'), loss=dict(type='MSELoss'))", 'evil.Net'),
    'loss': ("model = dict(type='Supervised', model=dict(type='ReLU'), loss=dict(type='evil.Net'))", 'evil.Net'),
    'unknown variable': ("model = dict(type='{{{{ fileDirname }}}}/evil.py:Net')", 'fileDirname'),
    'environment': ("model = dict(type='${{HOME}}/evil.py:Net')", 'HOME'),
    'registered name of a scope': ("model = dict(type='torch.Linear')", "type 'torch.Linear'"),
}


@pytest.mark.parametrize('text, named', NAMES_CODE.values(), ids=NAMES_CODE)
def test_code_that_is_not_registered_is_refused(hostile, text, named):
    with pytest.raises(ValueError, match='names code') as refused:
        config_in({'config': text.format(folder=hostile)}, 'x.pth', trust=False)
    assert named in str(refused.value)
    assert "config='…/config.py'" in str(refused.value)
    assert 'trust=True' in str(refused.value)


@pytest.mark.parametrize('name', ['EvilHook', 'runnerkit.EvilHook'])
def test_what_an_installed_package_offers_is_refused_and_not_imported(hostile, monkeypatch, name):
    """The same as for registered hooks: nothing that acts may be named."""
    install(hostile / 'site', monkeypatch, 'evil_pack', CODE, EvilHook='evil_pack:Net')
    for text in (
        f'model = dict(type={name!r}, in_features=1, out_features=1)',
        f"model = dict(type='Supervised', model=dict(type='ReLU'), loss={name!r})",
        f"model = dict(type='ReLU', hooks=[dict(type={name!r})])",
    ):
        with pytest.raises(ValueError, match=f"names code: (type|loss) '{name}', which may do more than compute"):
            config_in({'config': text}, 'x.pth', trust=False)
    assert 'evil_pack' not in sys.modules
    # A file may have hooks; they are not built for a prediction.
    config_in({'config': f'custom_hooks = [dict(type={name!r})]'}, 'x.pth', trust=False)


EXECUTED = [
    'import evil',
    "model = __import__('evil').Net(1, 1)",
    'model = f"{__import__(\'evil\')}"',
    "_base_ = ['evil.py']\nmodel = {{ _base_.model }}",
    "model = dict(type=__import__('evil').Net)",
    "filename = 'reserved'",
    "__file__ = 'reserved'",
    "model = dict(type='Linear'",
]


@pytest.mark.parametrize('text', EXECUTED)
@pytest.mark.parametrize('trust', [False, True])
def test_what_would_have_to_be_executed_is_refused_even_if_trusted(hostile, text, trust):
    with pytest.raises(ValueError, match='cannot be read as data.*It was not executed; pass the config as a file'):
        config_in({'config': text}, 'x.pth', trust)


@pytest.mark.parametrize('meta', [{}, {'config': None}, {'config': b'seed = 1'}, {'config': dict(seed=1)}])
def test_no_config(meta):
    with pytest.raises(ValueError, match='x.pth holds no config, so the model is not known: pass the config'):
        config_in(meta, 'x.pth', trust=False)


def test_bases_variables_and_the_environment_stay_texts(hostile):
    text = "name = '{{ fileDirname }} {{ _base_.x }} $HOME ~'\nload_from = 'evil.py'"
    cfg = config_in({'config': text}, 'x.pth', trust=False)
    assert cfg.name == '{{ fileDirname }} {{ _base_.x }} $HOME ~'
    with pytest.raises(ValueError, match='_base_ has an effect in a config file only'):
        config_in({'config': f"_base_ = ['evil.py']\n{text}"}, 'x.pth', trust=False)


class Mine(torch.nn.Linear):
    """A class that a test registers."""


def test_registered_classes_by_path_are_used_without_an_import(monkeypatch):
    monkeypatch.setitem(MODELS.module_dict, 'AnotherName', Mine)
    text = Config(
        {
            'custom_imports': {'imports': ['json']},
            'model': [
                {'type': Mine},
                {'type': torch.nn.Linear},
                {'type': 'ReLU'},
                {'type': f'{__name__}.Mine'},
                {'type': 'torch.nn.Linear'},
                {'type': 'runnerkit.nn.Supervised'},
            ],
        }
    ).pretty_text
    cfg = config_in({'config': text}, 'x.pth', trust=False)
    assert [each.type for each in cfg.model] == [Mine, torch.nn.Linear, 'ReLU', Mine, torch.nn.Linear, Supervised]


def test_registered_classes_of_another_scope(monkeypatch):
    child = Registry('model', parent=MODELS, scope='lab')
    child.register_module('Other', module=Mine)
    try:
        for name in ('lab.Other', f'{__name__}.Mine'):
            assert config_in({'config': f'model = dict(type={name!r})'}, 'x.pth', trust=False).model.type is Mine
    finally:
        del MODELS.children['lab']


def test_a_file_that_was_imported_and_registers_its_class(tmp_path):
    from runnerkit.utils.imports import import_object

    (tmp_path / 'lab_nets.py').write_text(
        'import torch\nfrom runnerkit.nn import MODELS\n@MODELS.register_module()\nclass LabNet(torch.nn.Linear): ...\n'
    )
    path = f'{tmp_path}/lab_nets.py:LabNet'
    text = f"custom_imports = dict(imports=['{tmp_path}/lab_nets.py'])\nmodel = dict(type='{path}')"
    with pytest.raises(ValueError, match='LabNet'):
        config_in({'config': text}, 'x.pth', trust=False)
    try:
        net = import_object(path)
        assert config_in({'config': text}, 'x.pth', trust=False).model.type is net
    finally:
        MODELS.module_dict.pop('LabNet', None)


class Task(Supervised):
    """A class of a user, which has metrics, too."""


@pytest.mark.parametrize(
    'name', ['Supervised', 'runnerkit.Supervised', 'runnerkit.nn.supervised.Supervised', 'Task', f'{__name__}.Task']
)
def test_metrics_are_not_built(monkeypatch, name):
    monkeypatch.setitem(MODELS.module_dict, 'Task', Task)
    text = f"model = dict(type={name!r}, model=dict(type='ReLU'), metrics=dict(a=dict(type='CLIPScore')))"
    assert 'metrics' not in config_in({'config': text}, 'x.pth', trust=False).model
    assert 'metrics' not in config_in({'config': f'{text[:-1]}, x=[{text[8:]}])'}, 'x.pth', trust=False).model.x[0]
    assert 'metrics' in config_in({'config': text}, 'x.pth', trust=True).model


def test_the_number_of_threads_is_not_taken_over():
    meta = {'config': 'num_threads = 100000\nseed = 1'}
    cfg = config_in(meta, 'x.pth', trust=False)
    assert 'num_threads' not in cfg
    assert cfg.seed == 1
    assert config_in(meta, 'x.pth', trust=True).num_threads == 100000


def test_only_what_will_be_built_is_looked_at():
    meta = {'config': "custom_hooks = [dict(type='evil.Hook')]\ndata = dict(test=dict(type='evil.Data'))"}
    assert config_in(meta, 'x.pth', trust=False).custom_hooks
    with pytest.raises(ValueError, match='evil.Data'):
        config_in(meta, 'x.pth', trust=False, parts=lambda cfg: [cfg.data])


def test_trust_imports(tmp_path):
    (tmp_path / 'good.py').write_text(CODE)
    text = f"custom_imports = dict(imports=['{tmp_path}/good.py'])\nmodel = dict(type='{tmp_path}/good.py:Net')"
    cfg = config_in({'config': text}, 'x.pth', trust=True)
    assert (tmp_path / 'good.ran').exists()
    assert cfg.model.type == f'{tmp_path}/good.py:Net'


def test_the_work_dir_of_the_file_is_a_way_out_if_it_was_made_here(tmp_path):
    Path(tmp_path, 'cfg.py').write_text('')
    write_record(tmp_path, config='cfg.py')
    with pytest.raises(ValueError, match='holds no config') as refused:
        config_in({}, str(tmp_path / 'epoch_1.pth'), trust=False)
    assert 'work dir' not in str(refused.value)
    write_record(tmp_path, seal=seal(tmp_path, {'config': 'cfg.py'}))
    with pytest.raises(ValueError, match=f"or its whole work dir, '{tmp_path}'"):
        config_in({}, str(tmp_path / 'epoch_1.pth'), trust=False)
