"""How the tools end."""

import pytest

from runnerkit.cli.errors import UsageError, usage_checked


def ending(error, capsys, monkeypatch=None):
    @usage_checked
    def main(argv=None):
        raise error

    code = main([])
    return code, capsys.readouterr().err


def test_usage_and_interrupts(capsys):
    assert ending(UsageError('no such flag'), capsys) == (2, 'error: no such flag\n')
    assert ending(KeyboardInterrupt(), capsys) == (130, 'interrupted\n')


def test_others_errors_keep_their_traceback(capsys):
    code, err = ending(ValueError('boom'), capsys)  # raised in this file: the user's
    assert code == 1
    assert 'Traceback' in err
    assert err.endswith('error: boom\n')


def test_our_own_refusals_are_one_line(capsys, monkeypatch):
    from runnerkit.hooks import get_priority

    @usage_checked
    def main(argv=None):
        get_priority(argv[0])

    assert main([101]) == 1
    err = capsys.readouterr().err
    assert err == 'error: priority must be between 0 (first) and 100 (last), but got 101\n'
    monkeypatch.setenv('RUNNERKIT_TRACEBACK', '1')
    assert main([101]) == 1
    assert 'Traceback' in capsys.readouterr().err


def test_what_returns_is_the_exit_code():
    assert usage_checked(lambda argv: 7)(None) == 7
    with pytest.raises(SystemExit):
        usage_checked(lambda argv: exit(3))(None)
