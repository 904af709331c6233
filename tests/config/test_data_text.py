"""JSON and YAML texts of a config, which read back to the same values."""

from __future__ import annotations

import os
from collections import OrderedDict
from functools import partial

import pytest

from runnerkit.config import Config
from runnerkit.config.pretty import as_data, format_data, is_mark


@pytest.mark.parametrize('name', ['out.py', 'out.yaml', 'out.json'])
def test_dumps_read_back_whatever_the_texts(tmp_path, name):
    texts = [
        '{{ fileDirname }}',
        'a {{fileBasename}} b',
        '{{{ fileExtname }}',
        '{{ _base_.x }}',
        '__base_0__',
        '\\{{ file',
    ]
    values = {'a': [*texts, 'é\n'], 'b': dict.fromkeys(texts, 1), 'c': {'d': '1', 'e': 'yes', 'f': '{}', 'g': {}}}
    Config(values).dump(tmp_path / name)
    assert Config.fromfile(tmp_path / name)._cfg_dict == values


def test_only_strings_that_would_be_filled_in_are_escaped():
    values = {'a': '{{ other }}', 'b': '{ {{ fileDirname }}', 'c': 'plain'}
    assert format_data(values, 'yaml') == """a: '{{ other }}'\nb: "{ \\u007b{ fileDirname }}"\nc: plain\n"""
    assert format_data(values, 'json') == '{"a": "{{ other }}", "b": "{ \\u007b{ fileDirname }}", "c": "plain"}'


@pytest.mark.parametrize('name', ['out.yaml', 'out.json'])
def test_what_no_path_finds_becomes_the_same_mark_as_in_python(tmp_path, name):
    cfg = Config({'key': lambda value: value, 'loss': partial(pow, exp=2)})
    for each in (name, 'out.py'):
        cfg.dump(tmp_path / each)
    marks = Config.fromfile(tmp_path / name)
    assert all(map(is_mark, marks.values()))
    assert marks._cfg_dict == Config.fromfile(tmp_path / 'out.py')._cfg_dict


def test_values_in_plain_containers():
    values = {'a': OrderedDict(b=({1}, [frozenset()])), 'f': os.path.join, 'g': (OrderedDict,)}
    plain = as_data(values)
    assert plain == {'a': {'b': ([1], [[]])}, 'f': 'posixpath.join', 'g': ('collections.OrderedDict',)}
    assert type(plain['a']) is dict
