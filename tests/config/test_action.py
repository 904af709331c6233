"""The grammar of ``--cfg-options``, held against a table of what mmcv's DictAction does."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from runnerkit.config import Config, DictAction

ROWS = json.loads((Path(__file__).parents[1] / 'data' / 'dict_action.json').read_text())['rows']

#: Where ours is right: mmcv drops spaces within strings (M-W13), does not end, cuts at a bracket that is another's,
#: has no dicts, or removes quotes before it looks for a number or a comma.
OURS = {
    'a="x y"': 'x y',
    'a=x y': 'x y',
    'a=[ "x y" , z]': ['x y', 'z'],
    'a=[1,2],[3,4]': [[1, 2], [3, 4]],
    'a=(1,2),(3,4)': [(1, 2), (3, 4)],
    'a=[1,2]x': '[1,2]x',
    'a=(1,2)(3,4)': '(1,2)(3,4)',
    'a=a(1,2)b': 'a(1,2)b',
    'a={b:1}': {'b': 1},
    'a="a,b"': 'a,b',
    "a=['a,b']": ['a,b'],
    'a="1"': '1',
    "a='None'": 'None',
    'a="true"': 'true',
}


def parse(*arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument('--cfg-options', nargs='+', action=DictAction)
    return parser.parse_args(['--cfg-options', *arguments] if arguments else []).cfg_options


def encoded(value):
    if isinstance(value, tuple):
        return {'tuple': [encoded(item) for item in value]}
    if isinstance(value, list):
        return [encoded(item) for item in value]
    if isinstance(value, dict):
        return {'dict': [[encoded(key), encoded(item)] for key, item in value.items()]}
    return {'float': repr(value)} if isinstance(value, float) else value


def same(left, right):
    return json.dumps(left) == json.dumps(right)  # 1 and True are equal, but not the same


#: A key without a name, and a set, both of which mmcv takes.
REFUSED = ('=1', 'a={1,2}')
AS_MMCV = [row for row in ROWS if 'value' in row and row['arg'] not in (*OURS, *REFUSED)]


@pytest.mark.parametrize('row', AS_MMCV, ids=lambda row: row['arg'])
def test_as_mmcv(row):
    assert same([[key, encoded(value)] for key, value in parse(row['arg']).items()], row['value'])


@pytest.mark.parametrize('argument', OURS)
def test_where_mmcv_is_wrong(argument):
    assert argument in [row['arg'] for row in ROWS]
    assert parse(argument) == {'a': OURS[argument]}


@pytest.mark.parametrize(
    'argument', [row['arg'] for row in ROWS if 'error' in row and row['arg'] not in OURS] + [*REFUSED]
)
def test_wrong_syntax_is_a_usage_error(argument, capsys):
    with pytest.raises(SystemExit) as caught:
        parse(argument)
    assert caught.value.code == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert repr(argument) in message
    dicts = {'a={1,2}': 'a dict is written dict(key=value)', '=1': 'must be key=value', 'a': 'must be key=value'}
    assert dicts.get(argument, 'brackets') in message


#: What mmcv has no form for, or reads as something else: dicts, and strings that quotes keep whole.
MORE = {
    '{}': {},
    '{ }': {},
    'dict()': {},
    '{a: 1}': {'a': 1},
    '{"a": [1, 2]}': {'a': [1, 2]},
    "{'a': (1, 'x,y'), b: {c: None, d: 1e-3}}": {'a': (1, 'x,y'), 'b': {'c': None, 'd': 1e-3}},
    "dict(type='Adam', lr=0.1, betas=(0.9, 0.999))": {'type': 'Adam', 'lr': 0.1, 'betas': (0.9, 0.999)},
    '[{}, {a: true}, dict(b=())]': [{}, {'a': True}, {'b': ()}],
    '{a: 1},{a: 2}': [{'a': 1}, {'a': 2}],
    '{0: a, "1": b}': {0: 'a', '1': 'b'},
    '{"a:b": 1, c: http://x/y?z=1}': {'a:b': 1, 'c': 'http://x/y?z=1'},
    '{a: "x,y", b: 1}': {'a': 'x,y', 'b': 1},
    'dict(a="x,y")': {'a': 'x,y'},
    'dict(a=dict(b="x,y", c=\'(\'), d={e: "}"})': {'a': {'b': 'x,y', 'c': '('}, 'd': {'e': '}'}},
    '[{a: "x,y"}, "b"]': [{'a': 'x,y'}, 'b'],
    '{a:}': {'a': ''},
    "'a,b'": 'a,b',
    '["a,b", c]': ['a,b', 'c'],
    '["a]", "(b"]': ['a]', '(b'],
    '"a","b"': ['a', 'b'],
    '[None, "None", "1", 1]': [None, 'None', '1', 1],
    '" x "': ' x ',
    '"it\'s, or not"': "it's, or not",
    "it's, bob's": ["it's", "bob's"],
    r'"say \"hi, you\""': 'say "hi, you"',
    r'"C:\new"': r'C:\new',
    '"(1, [2])"': (1, [2]),
    '"{a: 1}"': {'a': 1},
    '"\'[1,2]\'"': '[1,2]',
    '"[1, 2"': '[1, 2',
    '"{1, 2}"': '{1, 2}',
    '"a" and "b"': '"a" and "b"',
    '{epoch}': '{epoch}',
    '{epoch}_{iter}': '{epoch}_{iter}',
    '{{ fileDirname }}/x': '{{ fileDirname }}/x',
}


@pytest.mark.parametrize('text', MORE)
def test_dicts_and_quotes(text):
    assert same(encoded(parse(f'a={text}')['a']), encoded(MORE[text]))


@pytest.mark.parametrize(
    ('text', 'lacks'),
    [
        ('{a: 1', "'}' is missing"),
        ('{a: [1, 2}', "'}' is missing"),
        ('dict(a=1', "')' is missing"),
        ('(1]', "')' is missing"),
        ('[a, {b: 1]', "']' is missing"),
        ('"a', 'quotes'),
        ("[1, 'a]", 'quotes'),
        ('{a: "b}', 'quotes'),
        ('{a: 1, b}', 'a dict is written dict(key=value)'),
        ('dict(1, 2)', 'a dict is written dict(key=value)'),
    ],
)
def test_what_does_not_match_is_refused_with_a_way_out(text, lacks, capsys):
    with pytest.raises(SystemExit):
        parse(f'a={text}')
    message = capsys.readouterr().err
    assert lacks in message
    assert """key='"a, b"'""" in message


def test_a_dict_is_merged_into_the_config():
    cfg = Config({'model': {'depth': 1}, 'hooks': None})
    cfg.merge_from_dict(parse('model={width: 2}', 'hooks={}', 'new.meta={}', 'new.tags=["a,b"]'))
    assert cfg._cfg_dict == {'model': {'depth': 1, 'width': 2}, 'hooks': {}, 'new': {'meta': {}, 'tags': ['a,b']}}
    cfg.merge_from_dict(parse('model={_delete_: true, width: 3}'))
    assert cfg.model == {'width': 3}


@pytest.mark.parametrize('value', ['1' + '0' * 5000, '-' + '9' * 4400, '[1, 2' + '0' * 5000 + ']'])
def test_a_number_that_python_does_not_read_is_refused(value, capsys):
    """It became infinity, as a float of that size does."""
    with pytest.raises(SystemExit):
        parse(f'a={value}')
    assert 'digits is too long' in capsys.readouterr().err


def test_wrong_brackets_are_an_assertion_error_as_in_mmcv():
    with pytest.raises(AssertionError):
        parse('a=[(a,b), [1,2], false')


def test_several_arguments_and_a_repeated_flag():
    assert parse('a=1', 'b.c=x') == {'a': 1, 'b.c': 'x'}
    assert parse('a=1', '--cfg-options', 'b=2') == {'b': 2}
    assert parse() is None


def test_without_nargs():
    parser = argparse.ArgumentParser()
    parser.add_argument('--option', action=DictAction)
    assert parser.parse_args(['--option', 'a=1,2']).option == {'a': [1, 2]}
