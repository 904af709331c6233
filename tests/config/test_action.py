"""The grammar of ``--cfg-options``, held against a table of what mmcv's DictAction does."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from runnerkit.config import DictAction

ROWS = json.loads((Path(__file__).parents[1] / 'data' / 'dict_action.json').read_text())['rows']

#: Where ours is right: mmcv drops spaces within strings (M-W13), does not end, or cuts at a bracket that is another's.
OURS = {
    'a="x y"': 'x y',
    'a=x y': 'x y',
    'a=[ "x y" , z]': ['x y', 'z'],
    'a=[1,2],[3,4]': [[1, 2], [3, 4]],
    'a=(1,2),(3,4)': [(1, 2), (3, 4)],
    'a=[1,2]x': '[1,2]x',
    'a=(1,2)(3,4)': '(1,2)(3,4)',
    'a=a(1,2)b': 'a(1,2)b',
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
    return {'float': repr(value)} if isinstance(value, float) else value


def same(left, right):
    return json.dumps(left) == json.dumps(right)  # 1 and True are equal, but not the same


#: A key without a name, which mmcv takes.
REFUSED = '=1'
AS_MMCV = [row for row in ROWS if 'value' in row and row['arg'] not in (*OURS, REFUSED)]


@pytest.mark.parametrize('row', AS_MMCV, ids=lambda row: row['arg'])
def test_as_mmcv(row):
    assert same([[key, encoded(value)] for key, value in parse(row['arg']).items()], row['value'])


@pytest.mark.parametrize('argument', OURS)
def test_where_mmcv_is_wrong(argument):
    assert argument in [row['arg'] for row in ROWS]
    assert parse(argument) == {'a': OURS[argument]}


@pytest.mark.parametrize(
    'argument', [row['arg'] for row in ROWS if 'error' in row and row['arg'] not in OURS] + [REFUSED]
)
def test_wrong_syntax_is_a_usage_error(argument, capsys):
    with pytest.raises(SystemExit) as caught:
        parse(argument)
    assert caught.value.code == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert repr(argument) in message
    assert ('brackets' if '=' in argument and argument != REFUSED else 'must be key=value') in message


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
