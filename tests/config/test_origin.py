"""Where the parts of a config come from."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest

from runnerkit.config import Config
from runnerkit.config.origin import dotted, written_at

CFG = """\
norm = dict(type='BN')
pipeline = [
    dict(type='Load'),
    {'type': 'Flip',
     'p': 0.5}]
model = dict(
    dict(depth=1),
    type='Net',
    norm=norm,
    heads=(dict(a=1),
           dict(b=2)),
    late=dict(
        x=1))
typed: dict = dict(
    y=1)
made = {f'k{i}': dict(z=i) for i in range(2)}
loop = [*pipeline]
model['late']['w'] = 2
"""


@pytest.fixture
def cfg(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'cfg.py').write_text(CFG)
    return Config.fromfile('cfg.py')


def test_lines_of_a_python_file(cfg):
    assert str(cfg.model._origin_) == 'cfg.py:6'
    assert cfg.model._origin_.of('type') == 'cfg.py:8'
    assert cfg.model._origin_.of('depth') == 'cfg.py:7'
    assert str(cfg.model.norm._origin_) == 'cfg.py:1'
    assert str(cfg.model.heads[1]._origin_) == 'cfg.py:11'
    assert cfg.model.late._origin_.of('x') == 'cfg.py:13'
    assert cfg.model.late._origin_.of('w') == 'cfg.py:12'
    assert cfg.pipeline[1]._origin_.of('p') == 'cfg.py:5'
    assert cfg.typed._origin_.of('y') == 'cfg.py:15'
    assert str(cfg.made.k1._origin_) == 'cfg.py:16'
    assert str(cfg.loop[0]._origin_) == 'cfg.py:17'
    assert cfg._cfg_dict._origin_.of('typed') == 'cfg.py:14'


def test_a_file_is_parsed_when_a_line_is_asked_for(cfg):
    source = cfg.model._origin_.places[0].source
    assert 'top' not in vars(source)
    twin = pickle.loads(pickle.dumps(cfg))
    for config in (cfg, twin, copy.deepcopy(cfg)):
        assert str(config.model._origin_) == 'cfg.py:6'
        assert str(config.made.k1._origin_) == 'cfg.py:16'
    assert 'top' in vars(source)
    assert 'top' not in vars(pickle.loads(pickle.dumps(source)))


def test_a_line_below_what_the_text_shows(cfg):
    Path('cfg.py').write_text("kinds = [dict(x={1: dict(y=2)}) for _ in 'a']\nkinds[0]['z'] = [dict(w=1)]\n")
    cfg = Config.fromfile('cfg.py')
    assert cfg.kinds[0].x[1]._origin_.of('y') == str(cfg.kinds[0].z[0]._origin_) == 'cfg.py:1'
    Path('cfg.py').write_text('vars().update(a=dict(b=1))\n')
    assert Config.fromfile('cfg.py').a._origin_.of('b') == 'cfg.py'


def test_what_a_base_lends_was_written_there(cfg):
    Path('child.py').write_text("_base_ = 'cfg.py'\nown = dict(\n    net={{ _base_.model }},\n    x=1)\n")
    child = Config.fromfile('child.py')
    assert str(child.own.net._origin_) == 'cfg.py:6'
    assert child.own._origin_.of('net') == 'child.py:3'


def test_merged_values_name_both_files(cfg, tmp_path):
    (tmp_path / 'child.py').write_text("_base_ = 'cfg.py'\nmodel = dict(\n    type='Other')\n")
    child = Config.fromfile('child.py')
    assert str(child.model._origin_) == 'cfg.py:6, changed by child.py:2'
    assert child.model._origin_.of('type') == 'child.py:3'
    assert child.model._origin_.of('depth') == 'cfg.py:7'
    child.merge_from_dict({'model.depth': 3, 'new.a': 1})
    assert child.model._origin_.of('depth') == '--cfg-options'
    assert str(child.new._origin_) == '--cfg-options'
    assert child.model._origin_.of('type') == 'child.py:3'


def test_a_name_that_stands_for_itself_does_not_loop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'c.py').write_text('a = dict(x=1)\nb = a\na = b\n')
    assert str(Config.fromfile('c.py').a._origin_) == 'c.py:3'


def test_data_files_and_files_elsewhere(tmp_path, monkeypatch):
    (tmp_path / 'cfg.json').write_text(json.dumps({'model': {'a': 1}}, indent=1))
    cfg = Config.fromfile(tmp_path / 'cfg.json')
    assert str(cfg.model._origin_) == str(tmp_path / 'cfg.json') + ':2'
    monkeypatch.chdir(tmp_path)
    assert cfg.model._origin_.of('a') == 'cfg.json:3'


def test_lines_of_a_yaml_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path('base.yaml').write_text('shared: 1\nmodel:\n  depth: 2\n')
    Path('cfg.yaml').write_text(
        '_base_: base.yaml\n# two hooks\nhooks:\n- type: A\n  n: 1\n- &b {type: B}\nagain: *b\n'
    )
    cfg = Config.fromfile('cfg.yaml')
    assert cfg.hooks[0]._origin_.of('n') == 'cfg.yaml:5'
    assert cfg.hooks[1]._origin_.of('type') == 'cfg.yaml:6'
    assert cfg.model._origin_.of('depth') == 'base.yaml:3'
    assert cfg.hooks[0]._origin_.of('missing') == 'cfg.yaml:4'


def test_the_place_of_a_value_by_its_path(cfg):
    assert written_at(cfg, ('model', 'late', 'x')) == 'cfg.py:13'
    assert written_at(cfg, ('pipeline', 1, 'p')) == 'cfg.py:5'
    assert written_at(cfg, ('model', 'late', 'missing')) == 'cfg.py:12'
    assert written_at(cfg, ('missing', 'x')) == 'cfg.py'
    assert written_at(cfg, ('typed', 'y', 'deeper')) == 'cfg.py:15'
    assert written_at({'a': 1}, ('a',)) == ''
    assert dotted(('custom_hooks', 0, 'interval')) == 'custom_hooks[0].interval'


@pytest.mark.parametrize('name', ['c.yaml', 'c.json'])
def test_a_file_of_data_reads_no_variables(tmp_path, name):
    """Its text need not be Python."""
    (tmp_path / name).write_text(json.dumps({'lr_confg': None}) if name == 'c.json' else 'lr_confg:\n- a\n')
    place = Config.fromfile(tmp_path / name)._cfg_dict._origin_.place_of('lr_confg')
    assert place.source.names_read == set()
