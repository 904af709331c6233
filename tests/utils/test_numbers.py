import numpy as np
import pytest
import torch

from runnerkit.utils.numbers import check_whole_number, plain_number


@pytest.mark.parametrize(
    'value, options, error, message',
    [
        (0, {}, ValueError, '^n must be a whole number of at least 1, but got 0$'),
        (1, {'at_least': 2, 'hint': 'use two'}, ValueError, '^n must be .* at least 2, but got 1; use two$'),
        (1.0, {}, TypeError, 'but got 1.0$'),
        (True, {}, TypeError, 'but got True$'),
        ('2', {}, TypeError, "but got '2'$"),
        (None, {}, TypeError, 'at least 1, but got None$'),
        (0, {'or_none': True}, ValueError, '^n must be a whole number of at least 1, or None, but got 0$'),
    ],
)
def test_what_is_refused(value, options, error, message):
    with pytest.raises(error, match=message) as caught:
        check_whole_number('n', value, **options)
    assert isinstance(caught.value, AssertionError)  # which MMCV raises


def test_what_is_taken():
    check_whole_number('n', 1)
    check_whole_number('n', 0, at_least=0)
    check_whole_number('n', None, or_none=True)


@pytest.mark.parametrize(
    'value, number',
    [
        (torch.tensor(2.0), 2.0),
        (torch.tensor([[3]]), 3),
        (np.float64(0.5), 0.5),
        (np.array([1]), 1),
        (np.str_('a'), 'a'),
        (4, 4),
        ('text', 'text'),
        (None, None),
    ],
)
def test_numbers_in_tensors(value, number):
    found = plain_number(value)
    assert (found, type(found)) == (number, type(number))


def test_what_holds_several_stays():
    for value in (torch.ones(2), np.ones((2, 2)), torch.ones(0), [1]):
        assert plain_number(value) is value
