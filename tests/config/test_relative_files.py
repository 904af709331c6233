"""Code files that a config names relative to its own place."""

from pathlib import Path

import pytest

from runnerkit.config import Config
from runnerkit.registry import Registry
from runnerkit.utils.imports import import_object

TABLE = 'class Table:\n    place = {place!r}\n'


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Configs in two folders, each with a file ``table.py`` of its own, seen from a third folder."""
    for name in ('base', 'own', 'here'):
        (tmp_path / name).mkdir()
        (tmp_path / name / f'only_{name}.py').write_text(TABLE.format(place=name))
    for name in ('base', 'own'):
        (tmp_path / name / 'table.py').write_text(TABLE.format(place=name))
    (tmp_path / 'base' / 'cfg.py').write_text("model = dict(type='table.py:Table', parts=('only_base.py:Table', 1))\n")
    monkeypatch.chdir(tmp_path / 'here')
    return tmp_path


def place(named):
    return import_object(named).place


def read(project, text, name='cfg.py'):
    (project / 'own' / name).write_text(text)
    return Config.fromfile(project / 'own' / name)


def test_a_file_is_beside_the_config_that_names_it(project):
    cfg = read(
        project, "_base_ = '../base/cfg.py'\ndata = [dict(type='table.py:Table'), {'f': 'table.py:Table.place'}]\n"
    )
    assert [place(cfg.model.type), place(cfg.model.parts[0]), place(cfg.data[0].type)] == ['base', 'base', 'own']
    assert import_object(cfg.data[1].f) == 'own'
    assert cfg.model.parts[1] == 1


@pytest.mark.parametrize('name, text', [
    ('cfg.yaml', 'model:\n  type: table.py:Table\n  up: [../base/only_base.py:Table]\n'),
    ('cfg.json', '{"model": {"type": "./table.py:Table", "up": ["../base/only_base.py:Table"]}}'),
])  # fmt: skip
def test_in_every_format_and_folder(project, name, text):
    cfg = read(project, text, name)
    assert [place(cfg.model.type), place(cfg.model.up[0])] == ['own', 'base']


def test_a_file_that_is_not_there_is_in_the_working_directory(project):
    cfg = read(project, "model = dict(type='only_here.py:Table')\n")
    assert cfg.model.type == 'only_here.py:Table'
    assert place(cfg.model.type) == 'here'


def test_two_different_files_are_ambiguous_and_two_equal_ones_are_not(project):
    (project / 'here' / 'table.py').write_text(TABLE.format(place='own'))
    assert place(read(project, "model = dict(type='table.py:Table')\n").model.type) == 'own'
    (project / 'here' / 'table.py').write_text(TABLE.format(place='here'))
    with pytest.raises(
        ValueError, match=r"'table.py' is ambiguous: .*own/table.py, in the folder of the config, and .*here/table.py"
    ):
        read(project, "model = dict(type='table.py:Table')\n")
    cfg = read(project, "model = dict(type='{{ fileDirname }}/table.py:Table')\n")
    assert place(cfg.model.type) == 'own'


def test_what_the_command_line_sets_is_looked_for_in_both_places(project):
    cfg = read(project, "model = dict(type='table.py:Table')\n")
    cfg.merge_from_dict({'model.type': 'only_own.py:Table', 'data.0': dict(type='only_here.py:Table')})
    assert [place(cfg.model.type), place(cfg.data['0'].type)] == ['own', 'here']
    (project / 'here' / 'table.py').write_text(TABLE.format(place='here'))
    with pytest.raises(ValueError, match='is ambiguous'):
        cfg.merge_from_dict({'model.type': 'table.py:Table'})


def test_imports_stages_and_configs_are_files_alone(project):
    cfg = read(
        project,
        "custom_imports = dict(imports=['only_own.py', 'json'])\nflow = dict(startup='table.py')\n"
        "step = dict(config='cfg.py', script='table.py')\n",
    )
    assert cfg.custom_imports.imports == [str(project / 'own/only_own.py'), 'json']
    assert cfg.flow.startup == str(project / 'own/table.py')
    assert cfg.step == dict(config=str(project / 'own/cfg.py'), script='table.py')


@pytest.mark.parametrize('text', [
    'C:/nets/table.py:Table', r'C:\nets\table.py:Table', 'https://host/table.py:Table', 's3://bucket/table.py:Table',
    '/nowhere/table.py:Table', '~/table.py:Table', 'table.py', 'table.py:80', 'table.py: Table', 'nets.table:Table',
])  # fmt: skip
def test_other_texts_stay_as_they_are(project, text):
    cfg = read(project, f'model = dict(type={text!r}, texts=[{text!r}])\n')
    assert cfg.model == dict(type=text, texts=[text])


def test_where_variables_are_not_filled_in_nothing_is(project):
    (project / 'own' / 'cfg.py').write_text("model = dict(type='table.py:Table')\n")
    cfg = Config.fromfile(project / 'own' / 'cfg.py', use_predefined_variables=False)
    assert cfg.model.type == 'table.py:Table'
    assert Config.fromstring("model = dict(type='only_here.py:Table')", '.py').model.type == 'only_here.py:Table'


def test_a_missing_file_is_told_with_both_places_the_line_and_the_nearest_name(project):
    cfg = read(project, "\nmodel = dict(type='tabel.py:Table')\n")
    with pytest.raises(FileNotFoundError) as raised:
        Registry('model').build(cfg.model)
    said = str(raised.value)
    assert f'neither in the working directory {Path.cwd()} nor in the folder of a config file' in said
    assert "did you mean 'table.py'?" in said
    assert 'own/cfg.py:2)' in said
