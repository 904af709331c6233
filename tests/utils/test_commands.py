"""Commands and their values are checked where they are given, and where they are obeyed."""

import pytest

from runnerkit.utils.commands import COMMANDS, SCHEDULE, check_command


def test_right_commands():
    assert [check_command(command, None) for command in COMMANDS if command != 'lr'] == [None] * 5
    assert [check_command('lr', value) for value in ('0.5', 1, 0, '1e-3', SCHEDULE)] == [0.5, 1.0, 0.0, 1e-3, SCHEDULE]


@pytest.mark.parametrize(
    ('command', 'value', 'told'),
    [
        ('paus', None, r"unknown command 'paus' \(status, .*, lr\); did you mean 'pause'"),
        ('save', 3, 'save takes no value, but got 3'),
        ('lr', None, "lr takes a number of at least 0, or 'schedule', but got none"),
        ('lr', 'fast', "but got 'fast'"),
        ('lr', -1, 'but got -1'),
        ('lr', 'nan', "but got 'nan'"),
        ('lr', True, 'but got True'),
        ('lr', [1], r'but got \[1\]'),
        ('lr', 10**400, 'but got 1000'),
    ],
)
def test_wrong_commands(command, value, told):
    with pytest.raises(ValueError, match=told):
        check_command(command, value)
