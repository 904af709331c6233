"""Priorities by name and number."""

import pytest

from runnerkit.hooks import Priority, get_priority


def test_names_numbers_and_members():
    assert [get_priority(name) for name in ('HIGHEST', 'very_high', 'HIGH', 'ABOVE_NORMAL', 'Normal')] == [
        0,
        10,
        30,
        40,
        50,
    ]
    assert [get_priority(name) for name in ('BELOW_NORMAL', 'LOW', 'VERY_LOW', 'LOWEST')] == [60, 70, 90, 100]
    assert (get_priority(0), get_priority(100), get_priority(Priority.LOW)) == (0, 100, 70)


@pytest.mark.parametrize(
    'value, error, text',
    [
        (101, ValueError, 'between 0 .* and 100 .*, but got 101'),
        (-1, ValueError, 'but got -1'),
        ('URGENT', KeyError, "no priority named 'URGENT'; the names are HIGHEST"),
        (1.5, TypeError, 'must be an integer, a name or a Priority'),
        (True, TypeError, 'must be an integer'),
    ],
)
def test_wrong_priorities(value, error, text):
    with pytest.raises(error, match=text):
        get_priority(value)
