"""Merging, held against a table of what mmcv does."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from runnerkit.config import Config
from runnerkit.config.config_dict import as_config
from runnerkit.config.merge import merge, nested_options

TABLE = json.loads((Path(__file__).parents[1] / 'data' / 'config_merge.json').read_text())
ERRORS = {'TypeError': TypeError, 'KeyError': KeyError}


@pytest.mark.parametrize('row', TABLE['rows'], ids=lambda row: f'{row["by"]}-{row["child"]}')
def test_as_mmcv(row, tmp_path):
    def result():
        if row['by'] == 'options':
            cfg = Config(TABLE['base'])
            cfg.merge_from_dict(row['child'])
            return cfg
        (tmp_path / 'base.json').write_text(json.dumps(TABLE['base']))
        (tmp_path / 'child.json').write_text(json.dumps({'_base_': 'base.json', **row['child']}))
        return Config.fromfile(tmp_path / 'child.json')

    if 'error' in row:
        with pytest.raises(ERRORS[row['error']]):
            result()
    else:
        assert result()._cfg_dict.to_dict() == row['result']


def test_both_sides_stay_as_they_are():
    base, child = (
        as_config({'a': {'x': [1], 'y': {'z': 1}}}),
        as_config({'a': {'x': [2], 'y': {'_delete_': True}}, 'b': {'_delete_': True}}),
    )
    before = copy.deepcopy((base, child))
    merged = merge(child, base)
    merged.a.x = 3
    merged.a.y.new = 1
    assert (base, child) == before
    assert merged == {'a': {'x': 3, 'y': {'new': 1}}, 'b': {}}


@pytest.mark.parametrize(
    ('child', 'merged'),
    [
        ({'new': {'_delete_': True, 'x': 1}}, {'old': {'x': 0}, 'new': {'x': 1}}),
        ({'new': {'y': {'_delete_': True, 'x': 1}}}, {'old': {'x': 0}, 'new': {'y': {'x': 1}}}),
        ({'old': {'y': {'z': {'_delete_': True}}}}, {'old': {'x': 0, 'y': {'z': {}}}}),
        ({'old': {'_delete_': True, 'y': {'_delete_': True, 'x': 1}}}, {'old': {'y': {'x': 1}}}),
    ],
)
def test_marks_where_there_is_nothing_to_delete_leave_no_trace(child, merged):
    assert merge(as_config(child), as_config({'old': {'x': 0}})) == merged


def test_list_items_by_index():
    base = {'values': [1, 2], 'nested': [[1, 2], [{'a': 1}]]}
    assert merge({'values': {'0': 7}, 'nested': {'1': {'0': {'a': 5}}}}, base, allow_list_keys=True) == {
        'values': [7, 2],
        'nested': [[1, 2], [{'a': 5}]],
    }
    assert base['values'] == [1, 2]
    with pytest.raises(KeyError, match='Index 2 exceeds the length of list values='):
        merge({'values': {'2': 7}}, base, allow_list_keys=True)
    with pytest.raises(
        TypeError, match='values is a list, so values.x names none of its items: give an index from 0 to 1'
    ):
        merge({'values': {'x': 7}}, base, allow_list_keys=True)
    with pytest.raises(TypeError, match='You may set `_delete_=True`'):
        merge({'values': {'0': 7}}, base)


def test_an_option_may_lead_below_none():
    cfg = Config({'optimizer_config': {'grad_clip': None}})
    cfg.merge_from_dict({'optimizer_config.grad_clip.max_norm': 35})
    assert cfg.optimizer_config == {'grad_clip': {'max_norm': 35}}


def test_an_option_may_change_an_item_of_a_tuple():
    cfg = Config({'workflow': [('train', 1)], 'optimizer': {'betas': (0.9, 0.999)}})
    cfg.merge_from_dict({'workflow.0.1': 2, 'optimizer.betas.0': 0.8})
    assert cfg._cfg_dict == {'workflow': [('train', 2)], 'optimizer': {'betas': (0.8, 0.999)}}
    with pytest.raises(TypeError, match='betas is a tuple, so betas.x names none of its items'):
        cfg.merge_from_dict({'optimizer.betas.x': 1})


def test_the_error_of_a_clash_tells_where_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path('base.py').write_text('a = dict(b=1)\n')
    Path('child.py').write_text("_base_ = 'base.py'\na = dict(\n    b=dict(c=1))\n")
    with pytest.raises(TypeError, match=r'^b=.* in child config cannot inherit from base .* \(child.py:3\)$'):
        Config.fromfile('child.py')


def test_nested_options():
    assert nested_options({'a.b': 1, 'a.c.d': (2,), 'e': 3}) == {'a': {'b': 1, 'c': {'d': (2,)}}, 'e': 3}
    with pytest.raises(TypeError, match="'a.b' cannot be set: 'a' was given the value 1"):
        nested_options({'a': 1, 'a.b': 2})


def test_an_origin_knows_which_keys_the_command_line_has_added(tmp_path):
    (tmp_path / 'base.py').write_text('optimizer = dict(type=1)\n')
    (tmp_path / 'cfg.py').write_text('_base_ = "base.py"\noptimizer = dict(lr=1)\n')
    cfg = Config.fromfile(tmp_path / 'cfg.py')
    cfg.merge_from_dict({'optimizer.lr': 2, 'optimizer.momentum': 1})
    cfg.merge_from_dict({'optimizer.momentum': 2, 'fresh': 1})
    assert cfg.optimizer._origin_.added == {'momentum'}
    assert cfg._cfg_dict._origin_.added == {'fresh'}
