"""``pretty_text``: mmcv's layout, and a text that always reads back to the same values."""

from __future__ import annotations

import collections
import json
import math
import random
from pathlib import Path, PurePosixPath

import numpy as np
import pytest

from runnerkit.config import Config
from runnerkit.utils.imports import import_object

ROWS = json.loads((Path(__file__).parents[1] / 'data' / 'pretty_text.json').read_text())['rows']


def decoded(value):
    if isinstance(value, dict):
        if 'tuple' in value:
            return tuple(decoded(item) for item in value['tuple'])
        return {decoded(key): decoded(item) for key, item in value['dict']}
    return [decoded(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize('row', ROWS, ids=lambda row: row['text'].split(' ')[0])
def test_layout_as_mmcv(row):
    assert Config(decoded(row['value'])).pretty_text == row['text']


def same(left, right):
    """Equal, of the same types, with nan equal to nan; a ConfigDict counts as a dict."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and math.isnan(left):
        return math.isnan(right)
    return left == right


def reads_back(values):
    text = Config(values).pretty_text
    again = Config.fromstring(text, '.py')
    assert same(again._cfg_dict, values), text
    assert again.pretty_text == text
    return text


STRINGS = [
    '',
    "it's",
    'say "hi"',
    '''both ' and "''',
    'a\nb\t\r',
    'back\\slash',
    '\\',
    'é☃𝄞',
    '\x00\x7f',
    "'''",
    '{{ fileDirname }}',
    '{{ _base_.a }}',
]
STRINGS += ['{{{ fileBasename }}}', '{{fileExtname}}', '{%', 'x' * 120, 'None', '#', '{a}', '\u2028', '\ud800']
SCALARS = [
    None,
    True,
    False,
    0,
    -7,
    10**30,
    0.1,
    -0.0,
    1e-300,
    math.nan,
    math.inf,
    -math.inf,
    2j,
    b'\x00"',
    b'{{ fileDirname }}\\{{_base_.a }}',
    ...,
    range(3),
    frozenset(),
    frozenset({1}),
    set(),
    {1, 'a'},
]
KEYS = [
    'µ',
    'μ',
    'ﬁ',
    '__debug__',
    '__own',
    'a',
    'b_1',
    'class',
    'a b',
    '0',
    'dict',
    'float',
    'é',
    '',
    'a.b',
    "q'",
    3,
    None,
    (1, 'x'),
    1.5,
    True,
]


def random_value(rng, depth):
    kind = rng.random()
    if depth == 0 or kind < 0.35:
        return rng.choice(STRINGS if rng.random() < 0.5 else SCALARS)
    if kind < 0.65:
        return {rng.choice(KEYS): random_value(rng, depth - 1) for _ in range(rng.randrange(5))}
    items = [random_value(rng, depth - 1) for _ in range(rng.randrange(5))]
    return items if kind < 0.85 else tuple(items)


@pytest.mark.parametrize('seed', range(60))
def test_random_values_read_back(seed):
    rng = random.Random(seed)
    values = {
        rng.choice(
            [*'abcdefgh', 'class', 'a b', 'dict', 'set', 'globals', 'float', 'é', 'µ', 'μ', 'ﬁ', 1, None, (2, 'x')]
        ): random_value(rng, 4)
        for _ in range(6)
    }
    reads_back(values)


def short_value(rng, depth):
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([1, 'abc', None, 0.25])
    items = [short_value(rng, depth - 1) for _ in range(rng.randrange(1, 6))]
    kind = rng.random()
    return dict(zip('abcde', items, strict=False)) if kind < 0.6 else items if kind < 0.9 else tuple(items)


@pytest.mark.parametrize('seed', range(40))
def test_no_line_is_too_long_that_can_be_broken(seed):
    text = reads_back({'key': short_value(random.Random(seed), 6)})
    assert max(map(len, text.splitlines())) <= 79, text


def test_names_that_the_text_itself_uses():
    text = reads_back({'dict': 1, 'float': [math.nan], 'a': {'b': {'c': math.inf}}, 'a b': {'class': 2}, 'set': set()})
    assert text.startswith("a = dict(b=dict(c=float('inf')))\n")
    assert 'globals().update({' in text


def test_keys_that_python_would_read_as_others():
    text = reads_back({'ﬁ': {'µ': 1, 'μ': 2, '__debug__': 3}, 'fi': {'ﬁ': 1}, 1: 2, 'é': 3})
    assert 'é = 3\n' in text
    assert "'ﬁ': dict({" in text


def test_values_that_come_to_be_while_printing_are_not_confused():
    values = [np.float64(number) for number in range(200)]
    assert Config.fromstring(Config({'a': values}).pretty_text, '.py').a == list(range(200))


def test_a_lambda_is_marked(tmp_path):
    (tmp_path / 'cfg.py').write_text('make = dict(type=lambda: 1)\n')
    again = Config.fromstring(Config.fromfile(tmp_path / 'cfg.py').pretty_text, '.py')
    assert again.make.type == '<object> <function <lambda>>'


def test_long_tuples_and_strings_break():
    text = reads_back({'t': tuple(range(1000, 1030)), 'one': ('x' * 90,), 'm': [['a' * 30, 'b' * 30], ['c' * 30]] * 2})
    assert text.splitlines()[0] == 't = ('
    assert "one = (\n    'xxxx" in text
    assert "m = [\n    ['aaaa" in text


def test_classes_and_functions_become_paths(tmp_path):
    (tmp_path / 'nets.py').write_text('class Net:\n    class Inner: pass\ndef make(): pass\n')
    net, inner, make = (import_object(f'{tmp_path}/nets.py:{name}') for name in ('Net', 'Net.Inner', 'make'))
    cfg = Config({'a': {'type': collections.OrderedDict}, 'b': net, 'c': [inner, make], 'd': len})
    again = Config.fromstring(cfg.pretty_text, '.py')
    assert again.a.type == 'collections.OrderedDict'
    assert again.d == 'builtins.len'
    assert import_object(again.b) is net
    assert [import_object(path) for path in again.c] == [inner, make]


def test_values_that_python_text_has_no_word_for():
    class Odd:
        def __repr__(self):
            return '<odd "one">'

    cfg = Config({'a': np.float64(0.5), 'b': np.int32(3), 'c': PurePosixPath('x/y'), 'd': Odd(), 'e': np.array(2)})
    again = Config.fromstring(cfg.pretty_text, '.py')
    assert again._cfg_dict == {'a': 0.5, 'b': 3, 'c': 'x/y', 'd': '<object> <odd "one">', 'e': 2}
