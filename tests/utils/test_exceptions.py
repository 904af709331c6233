"""Saying more about an error that passes through."""

from __future__ import annotations

import pytest

from runnerkit.data import build_dataloader
from runnerkit.data.loader import keep_queues
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


class Unreadable(Exception):
    def __str__(self):
        return self.missing


def test_an_error_without_a_readable_message_has_its_class():
    assert one_line(Unreadable()) == 'Unreadable (its __str__ raises AttributeError)'


def test_one_line_prints_no_escape_sequence():
    error = KeyError('Net\x1b]0;title\x07\nerror: forged \u202e')
    assert one_line(error) == 'Net\\x1b]0;title\\x07 error: forged \\u202e'
    assert one_line(ValueError('wörk dir\nis 好 ' * 400)) == 'wörk dir; is 好 ' * 400


def test_one_line():
    assert one_line(KeyError('a "b"')) == 'a "b"'
    assert one_line(ValueError('two\nlines')) == 'two; lines'
    assert one_line(ValueError("it has 'a'.\nIt needs one of:\n\tb (c)\nd")) == "it has 'a'. It needs one of:  b (c); d"
    assert one_line(RuntimeError()) == 'RuntimeError'
    assert one_line(KeyError(3)) == 'KeyError: 3'


def test_a_key_that_is_missing_is_told_as_one():
    assert one_line(KeyError('length')) == "KeyError: 'length'"
    with pytest.raises(KeyError) as caught:
        raise_with_context(KeyError('valid'), 'Fish: ', ' (config.py:3)')
    assert one_line(caught.value) == "Fish: KeyError: 'valid' (config.py:3)"
    with pytest.raises(KeyError) as again:
        raise_with_context(caught.value, 'Outer: ')
    assert one_line(again.value) == "Outer: Fish: KeyError: 'valid' (config.py:3)"


class Broken:
    """A data set, one of whose samples has an error of its own cause."""

    def __init__(self, error):
        self.error = error

    def __len__(self):
        return 4

    def __getitem__(self, index):
        try:
            return {}['column']
        except KeyError:
            raise self.error from None if index else KeyError('the cause')


@pytest.mark.parametrize(
    'error, told', [(ValueError('no\n  number'), 'ValueError: no'), (KeyError('a'), "KeyError: 'a'")]
)
@pytest.mark.parametrize('seeded', [True, False])
def test_of_an_error_in_a_worker_only_the_error(error, told, seeded):
    loader = build_dataloader(Broken(error), 2, 1, dist=False, shuffle=False, seeded=seeded)
    with pytest.raises(type(error)) as caught:
        list(keep_queues(iter(loader)))  # or the worker would be waited for in vain
    line = one_line(caught.value)
    assert line.startswith(told)
    assert 'Traceback' not in line
    assert 'File' not in line
    assert ('sample 0 of the data set Broken' in line) == seeded
    assert line.endswith('in DataLoader worker process 0')
