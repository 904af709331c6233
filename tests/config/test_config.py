"""The Config object: access, copies, dumps, changes, imports."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from runnerkit.config import RESERVED_KEYS, Config, ConfigDict
from runnerkit.fileio import load, open_file

VALUES = {'model': {'type': 'Net', 'sizes': (1, 2), 'head': None}, 'lr': 0.1, 'steps': [{'at': 3}]}


@pytest.fixture
def cfg(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path('cfg.py').write_text("model = dict(type='Net', sizes=(1, 2), head=None)\nlr = 0.1\nsteps = [dict(at=3)]\n")
    return Config.fromfile('cfg.py')


def test_access(cfg):
    assert cfg.model.sizes == cfg['model']['sizes'] == (1, 2)
    assert cfg.steps[0].at == 3
    assert len(cfg) == 3
    assert list(cfg) == ['model', 'lr', 'steps']
    assert 'lr' in cfg
    assert 'nope' not in cfg
    assert cfg.get('nope', 5) == 5
    assert dict(cfg.items()) == VALUES
    assert cfg.filename == 'cfg.py'
    assert cfg.text.startswith(f'{Path.cwd()}/cfg.py\nmodel = ')
    assert repr(cfg) == f'Config (path: cfg.py): {VALUES!r}'
    with pytest.raises(AttributeError, match="has no attribute 'modle'; did you mean 'model'"):
        _ = cfg.modle
    with pytest.raises(KeyError, match='^.modle.$'):
        _ = cfg['modle']


def test_its_names_are_the_users(cfg):
    public = {name for name in dir(Config) if not name.startswith('_')}
    assert public == {'fromfile', 'fromstring', 'auto_argparser', 'dump', 'merge_from_dict', *RESERVED_KEYS}


def test_setting_and_deleting(cfg):
    cfg.new = {'a': [{'b': 1}]}
    cfg['other'] = {'c': 2}
    assert type(cfg.new) is type(cfg.new.a[0]) is type(cfg.other) is ConfigDict
    del cfg.new
    del cfg['other']
    assert list(cfg) == ['model', 'lr', 'steps']
    for name in RESERVED_KEYS:
        with pytest.raises(KeyError, match=f'{name} is reserved'):
            cfg[name] = 1
        with pytest.raises(KeyError, match=f'{name} is reserved'):
            setattr(cfg, name, 1)


def test_from_values():
    original = {'a': {'b': [1]}}
    cfg = Config(original)
    cfg.a.b.append(2)
    assert original == {'a': {'b': [1]}}
    assert (cfg.filename, cfg.text) == (None, '')
    assert len(Config()) == 0
    with pytest.raises(TypeError, match=r"cfg_dict must be a dict, but got <class 'int'>"):
        Config(3)
    with pytest.raises(KeyError, match='pretty_text is reserved'):
        Config({'pretty_text': 1})


def test_from_values_of_a_file(cfg):
    assert Config({'a': 1}, filename='cfg.py').text == Path('cfg.py').read_text()
    assert Config({'a': 1}, cfg_text='text', filename='cfg.py').text == 'text'


def test_copies_and_pickles(cfg):
    for twin in (copy.deepcopy(cfg), pickle.loads(pickle.dumps(cfg))):
        assert (twin._cfg_dict, twin.filename, twin.text) == (cfg._cfg_dict, cfg.filename, cfg.text)
        twin.model.type = 'Other'
        assert cfg.model.type == 'Net'
        assert str(twin.model._origin_) == 'cfg.py:1'
    shallow = copy.copy(cfg)
    assert shallow.model is cfg.model
    assert shallow.filename == cfg.filename


def test_from_string():
    assert Config.fromstring('a = 1\nb = dict(c=2)', '.py')._cfg_dict == {'a': 1, 'b': {'c': 2}}
    assert Config.fromstring('{"a": 1}', '.json').a == 1
    assert Config.fromstring('a: 1', '.yaml').a == Config.fromstring('a: 1', '.yml').a == 1
    assert Config.fromstring('a = 1', '.py').text == 'a = 1'
    with pytest.raises(OSError, match='Only py/yml/yaml/json type'):
        Config.fromstring('a = 1', '.txt')


@pytest.mark.parametrize('name', ['out.py', 'out.yaml', 'out.yml', 'out.json'])
def test_dump_to_a_file(cfg, name):
    cfg.model.type = os.path.join
    assert cfg.dump(name) is None
    again = Config.fromfile(name)
    sizes = [1, 2] if name == 'out.json' else (1, 2)
    assert again._cfg_dict == dict(VALUES, model={'type': 'posixpath.join', 'sizes': sizes, 'head': None})


def test_dumps_go_where_they_are_sent(cfg):
    for name in ('new/folder/out.py', 'other/new/out.json', 'memory://configs/out.py'):
        cfg.dump(name)
    assert Config.fromfile('new/folder/out.py')._cfg_dict == VALUES
    with open_file('memory://configs/out.py') as file:
        assert file.read() == cfg.pretty_text
    cfg.dump('out.pkl')
    assert load('out.pkl') == VALUES
    with pytest.raises(TypeError, match="Unsupported format: 'toml'"):
        cfg.dump('out.toml')


def test_names_that_a_python_config_keeps_to_itself_are_refused(cfg):
    Path('cfg.yaml').write_text('__own: 1\n')
    with pytest.raises(KeyError, match=r'__own \(cfg.yaml:1\) begins with two underscores'):
        Config.fromfile('cfg.yaml')
    for change in (
        lambda: Config({'__debug__': 1}),
        lambda: cfg.merge_from_dict({'__own.x': 1}),
        lambda: cfg.__setitem__('__own', 1),
    ):
        with pytest.raises(KeyError, match='begins with two underscores'):
            change()
    with pytest.raises(KeyError, match=r'text \(--cfg-options\)|text is reserved'):
        cfg.merge_from_dict({'text': 'x'})
    assert cfg._cfg_dict == VALUES


def test_bases_outside_files_are_refused(cfg):
    for change in (
        lambda: Config({'_base_': 'base.py'}),
        lambda: cfg.merge_from_dict({'_base_': 'base.py'}),
        lambda: cfg.__setattr__('_base_', ['base.py']),
    ):
        with pytest.raises(KeyError, match='_base_.* has an effect in a config file only'):
            change()
    assert '_base_' not in cfg


def test_whole_numbers_of_numpy_are_pythons():
    cfg = Config({'seed': np.int64(3), 'steps': [np.int32(8), (np.uint8(1),)], 'lr': np.float64(0.5), 'kind': np.int64})
    cfg.runner = {'max_epochs': np.int64(2)}
    cfg.merge_from_dict({'optimizer.step': np.int16(4)})
    kinds = [type(value) for value in (cfg.seed, cfg.steps[0], cfg.steps[1][0], cfg.runner.max_epochs)]
    assert {*kinds, type(cfg.optimizer.step)} == {int}
    assert cfg.kind is np.int64
    assert cfg.lr == 0.5


def test_options_are_not_shared_with_the_config(cfg):
    options = {'steps': [{'at': 1}], 'model.sizes': [1]}
    cfg.merge_from_dict(options)
    cfg.steps[0].at = 9
    cfg.steps.append(3)
    cfg.model.sizes.append(2)
    assert options == {'steps': [{'at': 1}], 'model.sizes': [1]}


def test_dump_to_a_string(cfg):
    assert cfg.dump() == cfg.pretty_text
    Path('cfg.yaml').write_text('a: {b: [1, 2]}')
    assert yaml.safe_load(Config.fromfile('cfg.yaml').dump()) == {'a': {'b': [1, 2]}}
    assert Config({'a': 1}).dump() == 'a = 1\n'


def test_merge_from_dict(cfg):
    model = cfg.model
    cfg.merge_from_dict({'model.type': 'New', 'steps.0.at': 5, 'fresh.key': (1,)})
    assert cfg._cfg_dict == {
        'model': {'type': 'New', 'sizes': (1, 2), 'head': None},
        'lr': 0.1,
        'steps': [{'at': 5}],
        'fresh': {'key': (1,)},
    }
    assert model.type == 'Net'
    with pytest.raises(TypeError):
        cfg.merge_from_dict({'steps.0.at': 7}, allow_list_keys=False)
    assert cfg.steps[0].at == 5


def test_auto_argparser(cfg, monkeypatch, capsys):
    Path('cfg.py').write_text("a = 1\nb = dict(c=0.5, d='x', e=True, f=[1, 2], g=None)\nn = [dict(z=1)]\n")
    monkeypatch.setattr(sys, 'argv', 'prog cfg.py --a 3 --b.c 1 --b.e false --b.f 4 5 --b.g x'.split())
    parser, cfg = Config.auto_argparser('what it does')
    args = vars(parser.parse_args())
    assert args == {'config': 'cfg.py', 'a': 3, 'b.c': 1.0, 'b.d': None, 'b.e': False, 'b.f': [4, 5], 'b.g': 'x'}
    assert cfg.b.d == 'x'
    assert 'what it does' in parser.format_help()


def test_a_file_as_values_and_text(cfg):
    Path('where.py').write_text("name = '{{ fileBasename }}'\n")
    values, text = Config._file2dict('where.py')
    assert values == {'name': 'where.py'}
    assert text.startswith(f'{Path.cwd()}/where.py\n')
    assert Config._file2dict('where.py', False)[0] == {'name': '{{ fileBasename }}'}


def test_custom_imports(cfg, monkeypatch):
    monkeypatch.syspath_prepend(str(Path.cwd()))
    Path('my_module_a.py').write_text('')
    Path('cfg.py').write_text("custom_imports = dict(imports=['my_module_a'])\n")
    Config.fromfile('cfg.py', import_custom_modules=False)
    assert 'my_module_a' not in sys.modules
    Config.fromfile('cfg.py')
    assert sys.modules.pop('my_module_a')
    Path('cfg.py').write_text("custom_imports = dict(imports=['no_such'], allow_failed_imports=True)\n")
    with pytest.warns(UserWarning, match='no_such failed to import and is ignored'):
        Config.fromfile('cfg.py')
    Path('cfg.py').write_text("custom_imports = dict(imports=['no_such'])\n")
    with pytest.raises(ImportError, match=r"Failed to import no_such: No module named 'no_such' .*\(cfg.py:1\)"):
        Config.fromfile('cfg.py')
    for wrong in ("['no_such']", "dict(import_='no_such')"):
        Path('cfg.py').write_text(f'custom_imports = {wrong}\n')
        with pytest.raises(TypeError, match=r'custom_imports \(cfg.py:1\) must be dict\(imports='):
            Config.fromfile('cfg.py')


def test_light_imports():
    heavy = {'torch', 'numpy', 'yapf', 'fsspec'}
    code = f'import sys, runnerkit.config, runnerkit.registry; print(sorted({heavy} & set(sys.modules)))'
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert done.stdout == '[]\n'
