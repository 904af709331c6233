"""Saying more about an error that passes through."""

from __future__ import annotations

import pytest

from runnerkit.utils.exceptions import WrongType, WrongValue, one_line, raise_with_context, with_message


@pytest.mark.parametrize('error, kind', [(WrongValue, ValueError), (WrongType, TypeError)])
def test_what_mmcv_asserted_can_still_be_caught_as_that(error, kind):
    for expected in (kind, AssertionError):
        with pytest.raises(expected, match='^why$'):
            raise error('why')


class Demanding(ValueError):
    def __init__(self, code, *, detail):
        super().__init__(f'{code} {detail}')
        self.code = code


class Built(Exception):
    def __str__(self):
        return 'always the same'


@pytest.mark.parametrize(
    'error',
    [ValueError('x'), KeyError('x'), ImportError('x', name='y'), OSError('x'), Demanding(1, detail='x'), TypeError()],
)
def test_the_class_stays_and_the_message_grows(error):
    with pytest.raises(type(error)) as caught:
        raise_with_context(error, 'before: ', ' after')
    assert caught.value.__cause__ is error
    assert one_line(caught.value).startswith('before: ')
    assert one_line(caught.value).endswith(' after')
    assert vars(caught.value) == vars(error)


@pytest.mark.parametrize(
    'error', [OSError(2, 'gone', 'file'), Built('x'), ValueError(3), UnicodeDecodeError('utf-8', b'', 0, 1, 'x')]
)
def test_where_the_message_is_fixed_there_is_a_note(error):
    assert with_message(error, 'before: ', '') is None
    with pytest.raises(type(error)) as caught:
        raise_with_context(error, 'before: ', 'after')
    assert caught.value is error
    assert error.__notes__ == ['before: after']
    with pytest.raises(type(error)):
        raise_with_context(error, 'before', note='the note')
    assert one_line(error) == f'{error} (before: after) (the note)'


def test_one_line_prints_no_escape_sequence():
    error = KeyError('Net\x1b]0;title\x07\nerror: forged \u202e')
    assert one_line(error) == 'Net\\x1b]0;title\\x07 error: forged \\u202e'
    assert one_line(ValueError('wörk dir\nis 好 ' * 400)) == 'wörk dir; is 好 ' * 400


def test_notes_on_python_without_add_note():
    class Old(Exception):
        @property
        def add_note(self):
            raise AttributeError

    error = Old('a', 'b')
    for _ in range(2):
        with pytest.raises(Old):
            raise_with_context(error, 'x')
    assert error.__notes__ == ['x', 'x']


def test_one_line():
    assert one_line(KeyError('a "b"')) == 'a "b"'
    assert one_line(ValueError('two\nlines')) == 'two; lines'
    assert one_line(ValueError("it has 'a'.\nIt needs one of:\n\tb (c)\nd")) == "it has 'a'. It needs one of:  b (c); d"
    assert one_line(RuntimeError()) == 'RuntimeError'
    assert one_line(KeyError(3)) == '3'
