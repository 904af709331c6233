"""Checks, conversions and decorators, with the values that MMCV 1.7.2 gave for the same."""

from types import SimpleNamespace

import pytest

from runnerkit.compat.mmcv import misc
from runnerkit.compat.mmcv.misc import (
    check_prerequisites,
    concat_list,
    deprecated_api_warning,
    has_method,
    is_list_of,
    is_method_overridden,
    is_seq_of,
    is_str,
    is_tuple_of,
    iter_cast,
    list_cast,
    requires_executable,
    requires_package,
    slice_list,
    to_ntuple,
    tuple_cast,
)


def test_is_str():
    assert is_str('a')
    assert not any(map(is_str, (b'a', 1, ['a'], None)))


def test_casting():
    assert list(iter_cast([1, 2], str)) == ['1', '2']
    assert not isinstance(iter_cast([1], str), list)
    assert iter_cast('123', int, list) == [1, 2, 3]
    assert list_cast((each for each in (1, 2)), str) == ['1', '2']
    assert tuple_cast({1: 2}, float) == (1.0,)
    with pytest.raises(TypeError, match='inputs must be an iterable object'):
        list_cast(1, str)
    with pytest.raises(TypeError, match='"dst_type" must be a valid type'):
        iter_cast([1], 'str')


@pytest.mark.parametrize(
    'args, expected',
    [
        (([1, 2], int), True),
        (([1, 'a'], int), False),
        (((1,), int, list), False),
        (((1,), int, tuple), True),
        (([], int), True),
        (('abc', str), True),
        (([1, 'a'], (int, str)), True),
        ((iter([1]), int), False),
        (({1}, int), False),
        ((1, int), False),
        ((range(3), int), True),
    ],
)
def test_is_seq_of(args, expected):
    assert is_seq_of(*args) is expected


def test_is_list_of_and_is_tuple_of():
    assert (is_list_of([1], int), is_list_of((1,), int)) == (True, False)
    assert (is_tuple_of((1,), int), is_tuple_of([1], int)) == (True, False)
    for error in (TypeError, AssertionError):
        with pytest.raises(error, match='seq_type must be a type'):
            is_seq_of([1], int, 5)


def test_slice_list():
    assert slice_list([1, 2, 3], [1, 2]) == [[1], [2, 3]]
    assert slice_list([1, 2, 3, 4], 2) == [[1, 2], [3, 4]]
    assert slice_list([1, 2, 3], 3) == [[1, 2, 3]]
    assert slice_list([1, 2, 3], [3, 0]) == [[1, 2, 3], []]
    assert slice_list((1, 2, 3), [1, 2]) == [(1,), (2, 3)]
    for wrong in ((1, 2), 'a'):
        with pytest.raises(TypeError, match='"indices" must be an integer or a list of integers'):
            slice_list([1, 2, 3], wrong)
    with pytest.raises(ValueError, match='sum of lens and list length does not match: 2 != 3'):
        slice_list([1, 2, 3], [1, 1])
    with pytest.raises(AssertionError, match='cannot be cut into pieces of 2'):
        slice_list([1, 2, 3], 2)
    with pytest.raises(ValueError, match='cannot be cut into pieces of 0'):
        slice_list([1, 2, 3], 0)


def test_concat_list():
    assert concat_list([[1, 2], (3,), []]) == [1, 2, 3]
    assert concat_list([]) == []


def test_to_ntuple():
    assert [getattr(misc, f'to_{n}tuple')(None) for n in (1, 2, 3, 4)] == [(None,) * n for n in (1, 2, 3, 4)]
    assert to_ntuple(5)(2) == (2,) * 5
    for value in ([1], 'ab', {1}, (1, 2, 3)):
        assert misc.to_2tuple(value) is value


def test_is_method_overridden():
    class Base:
        def kept(self): ...
        def changed(self): ...

    class Derived(Base):
        def changed(self): ...

    assert is_method_overridden('changed', Base, Derived)
    assert is_method_overridden('changed', Base, Derived())
    assert not is_method_overridden('kept', Base, Derived)
    with pytest.raises(AssertionError, match="base_class doesn't accept instance"):
        is_method_overridden('changed', Base(), Derived)


def test_has_method():
    thing = SimpleNamespace(method=len, value=1)
    assert [has_method(thing, name) for name in ('method', 'value', 'nothing')] == [True, False, False]
    assert has_method(str, 'join')


def test_a_function_waits_for_what_it_needs(capsys):
    @check_prerequisites(['a', 'b', 'c'], lambda name: name == 'a', msg_tmpl='need {} in {}')
    def work():
        """What it does."""

    assert work.__doc__ == 'What it does.'
    with pytest.raises(RuntimeError, match='need b, c in work'):
        work()
    assert capsys.readouterr().out == 'need b, c in work\n'


def test_packages_and_programs(capsys):
    @requires_package('yaml')
    @requires_executable(('ls',))
    def fine(value, more=0):
        return value + more

    @requires_package(['yaml', '_no_such_package'])
    def lacks_a_package(): ...

    @requires_executable('_no_such_program')
    def lacks_a_program(): ...

    assert fine(1, more=2) == 3
    assert capsys.readouterr().out == ''
    for function, name in ((lacks_a_package, '_no_such_package'), (lacks_a_program, '_no_such_program')):
        with pytest.raises(RuntimeError):
            function()
        assert capsys.readouterr().out == (
            f'Prerequisites "{name}" are required in method "{function.__name__}" but not found, '
            'please install them first.\n'
        )


def test_arguments_that_have_new_names():
    @deprecated_api_warning({'old': 'new', 'older': 'newer'}, cls_name='Thing')
    def work(new=0, newer=0):
        return new, newer

    with pytest.warns(DeprecationWarning, match='is deprecated') as caught:
        assert work(old=1, older=2) == (1, 2)
    assert [str(each.message) for each in caught] == [
        '"old" is deprecated in `Thing.work`, please use "new" instead',
        '"older" is deprecated in `Thing.work`, please use "newer" instead',
    ]
    assert caught[0].filename == __file__
    assert work(new=3) == (3, 0)
    with pytest.raises(AssertionError, match="Thing.work got both 'old' and 'new'"):
        work(old=1, new=2)

    @deprecated_api_warning({'old': 'new'})
    def plain(new):
        return new

    with pytest.warns(DeprecationWarning, match='"old" is deprecated in `plain`'):
        assert plain(old=1) == 1
