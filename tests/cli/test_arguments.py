import argparse

import pytest

from runnerkit.cli.arguments import SHARED, add_shared, count, number, positive_number, whole_number


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


def test_shared_arguments_may_be_changed():
    parse = argparse.ArgumentParser()
    add_shared(parse, 'config', '--local-rank')
    add_shared(parse, '--which', default='latest')
    args = parse.parse_args(['cfg.py', '--local_rank', '2'])
    assert (args.config, args.local_rank, args.which) == ('cfg.py', 2, 'latest')
    assert 'default' in SHARED['--which']
