"""Commands are checked where they are given, and where they are obeyed."""

import pytest

from runnerkit.utils.commands import COMMANDS, check_command


def test_right_and_wrong_commands():
    for command in COMMANDS:
        check_command(command)
    with pytest.raises(ValueError, match=r"unknown command 'paus' \(status, .*, stop\); did you mean 'pause'"):
        check_command('paus')
