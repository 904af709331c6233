import argparse

import pytest

from runnerkit.cli.arguments import SHARED, argument, count, flag, number, positive_number, whole_number
from runnerkit.cli.parser import command_line


@pytest.mark.parametrize(
    'convert, text, value',
    [(whole_number, '0', 0), (count, '7', 7), (number, '0', 0.0), (number, '1e-4', 1e-4), (positive_number, '2', 2.0)],
)
def test_values(convert, text, value):
    assert convert(text) == value


@pytest.mark.parametrize(
    'convert, text, told',
    [
        (whole_number, '-1', "a whole number of at least 0, but got '-1'"),
        (whole_number, '1.0', "a whole number of at least 0, but got '1.0'"),
        (count, '0', "a whole number of at least 1, but got '0'"),
        (number, 'inf', "a number of at least 0, but got 'inf'"),
        (number, 'big', "a number of at least 0, but got 'big'"),
        (positive_number, '0', "a number above 0, but got '0'"),
    ],
)
def test_wrong_values(convert, text, told):
    with pytest.raises(argparse.ArgumentTypeError, match=f'^must be {told}$'):
        convert(text)


def test_a_command_has_shared_arguments_which_may_be_changed_and_some_that_exclude_each_other(capsys):
    exclusive = [flag('--one', 'first'), flag('--other', 'second')]

    @command_line('tool', 'What it does.', 'config', '--local-rank', argument('--which', default='latest'), exclusive)
    def main(args):
        """Look at the arguments."""
        assert (args.config, args.local_rank, args.which, args.one) == ('cfg.py', 2, 'latest', True)
        return 3 if args.other else None

    assert main(['cfg.py', '--local_rank', '2', '--one']) == 0
    assert 'default' in SHARED['--which']
    with pytest.raises(SystemExit):
        main(['cfg.py', '--one', '--other'], prog='other')
    assert 'other: error: argument --other: not allowed with argument --one' in capsys.readouterr().err


def test_a_command_of_one_process_is_refused_in_several(monkeypatch, capsys):
    monkeypatch.setenv('WORLD_SIZE', '2')
    assert command_line('tool', '', one_process=True)(lambda args: 7)([]) == 2
    assert 'tool works in one process' in capsys.readouterr().err
    monkeypatch.setenv('WORLD_SIZE', '1')
    assert command_line('tool', '', one_process=True)(lambda args: 7)([]) == 7
