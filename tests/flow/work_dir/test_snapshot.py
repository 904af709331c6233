"""The config and the user's files in a work dir."""

import json
import logging
import shutil
import sys

import pytest

from runnerkit.config import Config
from runnerkit.flow import Context
from runnerkit.flow.work_dir import snapshot
from runnerkit.flow.work_dir.snapshot import files_needed, sources_in, take_over, user_files, write_snapshot
from runnerkit.nn import MODELS
from runnerkit.utils.imports import import_object
from runnerkit.utils.user_files import module_of_file


@pytest.fixture
def project(tmp_path):
    """Configs beside the files that they name, in two folders."""
    files = {
        'configs/base.py': "model = dict(type='{{ fileDirname }}/../lib/nets.py:Net', width=3)\n",
        'configs/cfg.py': (
            "_base_ = 'base.py'\n"
            "custom_imports = dict(imports=['{{ fileDirname }}/hooks.py', 'json'])\n"
            "data = dict(val=dict(type='{{ fileDirname }}/late.py:Late'), root='{{ fileDirname }}/images')\n"
            "pair = (dict(type='torch.nn.ReLU'), ['{{ fileDirname }}/hooks.py:Mine'])\n"
            "script = '{{ fileDirname }}/unused.py'\n"
            "words = '{' '{ fileDirname }}'\n"
        ),
        'configs/hooks.py': 'from .parts import scale\n\n\nclass Mine:\n    scale = scale\n',
        'configs/parts.py': 'scale = 2\n',
        'configs/late.py': 'class Late: ...\n',
        'configs/unused.py': '',
        'lib/nets.py': 'class Net:\n    def __init__(self, width): ...\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def written(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob('*') if path.is_file())


def test_the_files_that_a_config_names(project):
    names = [str(file.relative_to(project)) for file in user_files(Config.fromfile(project / 'configs' / 'cfg.py'))]
    assert sorted(names) == ['configs/hooks.py', 'configs/late.py', 'configs/parts.py', 'lib/nets.py']
    assert user_files(Config({'a': 1, 'custom_imports': None})) == []


@pytest.mark.parametrize('extension', ['.py', '.yaml', '.json'])
def test_the_config_works_elsewhere_when_the_project_is_gone(project, extension):
    cfg, work_dir = Config.fromfile(project / 'configs' / 'cfg.py'), project / 'run'
    cfg.work_dir, cfg.load_from = str(work_dir), f'{work_dir}/earlier/x.pth'
    values = json.loads(json.dumps(cfg._cfg_dict)) if extension == '.json' else cfg._cfg_dict
    work_dir.mkdir()
    record = write_snapshot(work_dir, Config(values, '', f'{project}/configs/cfg{extension}'), {})
    assert record == {'config': f'cfg{extension}', 'code': 'code'}
    files = ['code/configs/hooks.py', 'code/configs/late.py', 'code/configs/parts.py', 'code/lib/nets.py']
    assert written(work_dir) == sorted([f'cfg{extension}', *files])
    moved = project.parent / f'{project.name}_moved'
    shutil.move(work_dir, moved)
    assert str(work_dir) not in (moved / f'cfg{extension}').read_text()
    shutil.rmtree(project)
    read = Config.fromfile(moved / f'cfg{extension}')
    assert (read.work_dir, read.load_from) == (str(moved), f'{moved}/earlier/x.pth')
    assert read.words == '{{ fileDirname }}'
    assert read.data.root == str(project / 'configs' / 'images')  # a path that is not the work dir's stays
    assert read.custom_imports.imports == [f'{moved}/code/configs/hooks.py', 'json']
    assert import_object(read.pair[1][0]).scale == 2
    assert import_object(read.model.type)(3)
    shutil.rmtree(moved)


def test_neighbours_in_one_folder_lie_in_code_itself(project):
    cfg = Config({'model': {'type': f'{project}/configs/hooks.py:Mine'}})
    assert write_snapshot(project, cfg, {}) == {'config': 'config.py', 'code': 'code'}
    assert written(project / 'code') == ['hooks.py', 'parts.py']
    assert "type='{{ fileDirname }}/code/hooks.py:Mine'" in (project / 'config.py').read_text()


def test_classes_of_files_are_the_users_too(project, monkeypatch):
    monkeypatch.syspath_prepend(str(project / 'lib'))
    (project / 'lib' / 'nets.py').rename(project / 'lib' / 'nets_on_path.py')
    net = __import__('nets_on_path').Net
    late = module_of_file(str(project / 'configs' / 'late.py')).Late
    cfg = Config({'model': {'type': net}, 'data': [{'type': late}], 'other': {'type': dict}})
    write_snapshot(project, cfg, {})
    assert written(project / 'code') == ['configs/late.py', 'lib/nets_on_path.py']
    read = Config.fromfile(project / 'config.py')
    assert read.model.type == f'{project}/code/lib/nets_on_path.py:Net'
    assert read.other.type == 'builtins.dict'
    del sys.modules['nets_on_path']


def test_nothing_of_the_users_is_overwritten(project):
    folder = project / 'configs'
    (folder / 'code').mkdir()
    (folder / 'code' / 'mine.py').write_text('mine')
    before = (folder / 'cfg.py').read_text()
    record = write_snapshot(folder, Config.fromfile(folder / 'cfg.py'), {})
    assert record == {'config': 'cfg_run.py', 'code': 'code_run'}
    assert (folder / 'cfg.py').read_text() == before
    assert written(folder / 'code') == ['mine.py']
    assert write_snapshot(folder, Config.fromfile(folder / 'cfg.py'), record) == record


def test_a_second_start_replaces_what_the_first_has_written(project):
    path, work_dir = project / 'configs' / 'cfg.py', project / 'run'
    record = write_snapshot(work_dir, Config.fromfile(path), {})
    before = written(work_dir / 'code')
    (work_dir / 'code' / 'configs' / 'mine.py').write_text('')
    (project / 'configs' / 'parts.py').write_text('scale = 3\n')
    (project / 'configs' / 'hooks.py').write_text('from .parts import scale as s\nclass Mine: ...\n')
    path.write_text(path.read_text().replace('late.py:Late', 'hooks.py:Mine') + 'seed = 4\n')
    assert write_snapshot(work_dir, Config.fromfile(path, import_custom_modules=False), record) == record
    assert Config.fromfile(work_dir / 'cfg.py', import_custom_modules=False).seed == 4
    assert (work_dir / 'code' / 'configs' / 'parts.py').read_text() == 'scale = 3\n'
    assert written(work_dir / 'code') == sorted([*before, 'configs/mine.py'])  # nothing there is deleted


def test_a_run_of_the_work_dirs_own_config_reads_what_lies_there(project):
    work_dir = project / 'run'
    record = write_snapshot(work_dir, Config.fromfile(project / 'configs' / 'cfg.py'), {})
    cfg, before = Config.fromfile(work_dir / 'cfg.py'), (work_dir / 'cfg.py').read_text()
    assert sources_in(work_dir, cfg) == {'cfg.py', 'code'}
    assert sources_in(project / 'lib', cfg) == set()
    files = written(work_dir)
    assert write_snapshot(work_dir, cfg, record) == record
    assert (work_dir / 'cfg.py').read_text() == before
    assert written(work_dir) == files
    # … and without a record, what is there is taken for the user's
    (work_dir / 'code' / 'other.py').write_text('')
    assert write_snapshot(work_dir, cfg, {}) == {'config': 'cfg_run.py'}
    assert (work_dir / 'code' / 'other.py').exists()


def test_files_that_register_classes_and_are_not_copied(project, monkeypatch):
    nets = project / 'lib' / 'nets_that_register.py'
    nets.write_text('from runnerkit.nn import MODELS\n@MODELS.register_module()\nclass LibNet: ...\n')
    monkeypatch.syspath_prepend(str(nets.parent))
    __import__('nets_that_register')
    try:
        cfg = {'model': {'type': 'LibNet'}, 'other': {'type': 'EMAHook'}}
        assert files_needed(Config(cfg)) == [nets]
        assert files_needed(Config({'model': {'type': 'Supervised'}})) == []
        for name in ('nets_that_register', str(nets)):
            assert files_needed(Config({**cfg, 'custom_imports': {'imports': name}})) == []
    finally:
        del sys.modules['nets_that_register'], MODELS.module_dict['LibNet']


def test_braces_of_the_users_stay(project):
    write_snapshot(project, Config({'words': '{' + '{ fileDirname }}'}), {})
    assert Config.fromfile(project / 'config.py').words == '{' + '{ fileDirname }}'
    assert len(snapshot._MARK) == len(snapshot._HERE)


def test_the_log_names_what_the_work_dir_lacks(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(snapshot, 'files_needed', lambda cfg: [tmp_path / 'nets.py'])
    with caplog.at_level(logging.INFO, 'runnerkit'):
        take_over(Context(Config({}), work_dir=tmp_path, logger=logging.getLogger('runnerkit')))
    assert (
        'nets.py, which registers classes of the config and is not copied. To copy it: '
        f"custom_imports=dict(imports=['{tmp_path}" in caplog.text
    )
