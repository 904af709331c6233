"""Configs as data: what is read, and that nothing is executed."""

import pytest

from runnerkit.config import Config
from runnerkit.config.settings import NoLiteral, read_literals


def test_what_pretty_text_writes_is_read_back():
    values = {
        'model': dict(type='Net', sizes=[1, -2.5, None], pair=(1,), none=(), empty={}),
        'numbers': [float('inf'), float('-inf'), 1e-3, 2 + 3j, True],
        'sets': [set(), {1, 2}, frozenset(), frozenset({'a'})],
        'steps': [range(3), slice(1, None)],
        'odd': {1: 'a', 'a b': b'x'},
        'class': 'a keyword',
        'dict': 'a name that the text needs',
        'long': ['a text that is long enough for several lines'] * 5,
        'braces': '{{ fileDirname }} {{ _base_.model }} ${HOME}',
    }
    read = read_literals(Config(values).pretty_text)
    assert read == values
    assert {type(each) for each in read['sets']} == {set, frozenset}


HOSTILE = {
    'import': 'import os',
    'from': 'from os import system',
    'call': "x = open('{mark}', 'w')",
    'import call': "x = __import__('os').mknod('{mark}')",
    'f-string': "x = f\"{{open('{mark}', 'w')}}\"",
    'deep call': "x = dict(a=[dict(b=(1, open('{mark}', 'w')))])",
    'argument': "x = float(open('{mark}', 'w'))",
    'key': "x = {{open('{mark}', 'w'): 1}}",
    'comprehension': "x = [open('{mark}', 'w') for _ in range(1)]",
    'lambda': "x = (lambda: open('{mark}', 'w'))()",
    'decorator': "@open('{mark}', 'w').write\ndef f(): ...",
    'class': "class X:\n    open('{mark}', 'w')",
    'update': "globals().update(open('{mark}', 'w'))",
    'update of keys': "globals().update({{'a': open('{mark}', 'w')}})",
    'another update': "globals().update(a=open('{mark}', 'w'))",
    'expression': "open('{mark}', 'w')",
    'annotation': "x: open('{mark}', 'w') = 1",
    'attribute': 'x = dict.__base__',
    'target': "y[open('{mark}', 'w')] = 1",
    'name': 'x = open',
    'starred': "x = dict(**open('{mark}', 'w'))",
    'starred literal': "x = dict(**{{'a': 1}})",
    'spread': "x = [*open('{mark}', 'w')]",
    'dict spread': "x = {{**open('{mark}', 'w')}}",
    'walrus': "x = (y := open('{mark}', 'w'))",
    'power': 'x = 9 ** 9 ** 9',
    'product': "x = 'a' * 10 ** 12",
    'base': 'x = {{{{ _base_.x }}}}',
    'file variable': 'x = {{{{ fileDirname }}}}',
    'condition': "x = 1 if open('{mark}', 'w') else 2",
    'assert': "assert open('{mark}', 'w')",
    'set of a range': 'x = set(range(1000))',
    'frozenset of a range': 'x = [frozenset(range(1000))]',
    'float by name': 'x = float(x=1)',
    'wrong float': "x = float('a')",
    'unhashable': 'x = {{[]: 1}}',
    'syntax': 'x = (',
    'null byte': 'x = 1\0',
    'deep': 'x = ' + '[' * 5000 + ']' * 5000,
    'deeper than allowed': 'x = ' + '[' * 150 + ']' * 150,
    'deep sum': 'x = ' + '-' * 100000 + '1',
}


@pytest.mark.parametrize('text', HOSTILE.values(), ids=HOSTILE)
def test_what_would_have_to_be_executed_is_refused(text, tmp_path):
    mark = tmp_path / 'executed'
    with pytest.raises(NoLiteral):
        read_literals(text.format(mark=mark))
    assert not mark.exists()


def test_the_refusal_names_the_line():
    with pytest.raises(NoLiteral, match=r"^line 2: __import__\('os'\) is a call, and would have to be executed$"):
        read_literals("a = 1\nb = __import__('os')")
    with pytest.raises(NoLiteral, match=r'^line 1: import os is not of the form key = value$'):
        read_literals('import os')
