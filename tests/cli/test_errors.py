"""How the tools end."""

import json
import sys
from asyncio import CancelledError
from contextlib import suppress

import pytest

from runnerkit.cli.errors import is_of_user
from runnerkit.cli.parser import Parser, usage_checked, wrong_usage
from runnerkit.distributed import watch  # noqa: F401  # as every run of several ranks has
from runnerkit.utils.ending import CommandLineExit, UsageError
from runnerkit.utils.exceptions import PeerFailed, ToldByFirstRank


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


def test_an_error_of_the_users_code_is_never_wrong_usage(capsys):
    @usage_checked
    def main(argv=None):
        with wrong_usage(OSError):
            raise FileNotFoundError('x.png')  # in this file: the user's

    assert main([]) == 1
    assert 'Traceback' in capsys.readouterr().err


def test_our_own_refusals_are_one_line(capsys, monkeypatch):
    from runnerkit.hooks import get_priority

    main = usage_checked(get_priority)  # no frame of this file, which would count as the user's
    assert main(101) == 1
    err = capsys.readouterr().err
    assert err == 'error: priority must be between 0 (first) and 100 (last), but got 101\n'
    monkeypatch.setenv('RUNNERKIT_TRACEBACK', '1')
    assert main(101) == 1
    assert 'Traceback' in capsys.readouterr().err


def test_what_returns_is_the_exit_code():
    assert usage_checked(lambda argv: 7)(None) == 7
    assert usage_checked(lambda argv: sys.exit(3))(None) == 3
    with pytest.raises(SystemExit, match='^0$'):
        usage_checked(Parser(prog='a tool').parse_args)(['--help'])


@pytest.mark.parametrize(
    'error, last',
    [
        (SystemExit('no data'), 'error: no data'),
        (SystemExit(0), 'error: SystemExit: 0'),
        (GeneratorExit(), 'error: GeneratorExit'),
        (CancelledError('late'), 'error: CancelledError: late'),
    ],
)
def test_the_last_line_names_what_is_no_error(error, last, capsys):
    code, err = ending(error, capsys)
    assert (code, err.splitlines()[-1]) == (1, last)


def test_a_bug_in_the_users_code_keeps_its_traceback_wherever_it_breaks(project, train):
    """Also where the innermost frame is Python's or ours: the user's line is the one to look at."""
    for body in ("import json; json.loads('not json')", "runner.log_buffer.update({'a': 'text'})"):
        (project / 'hook.py').write_text(
            'from runnerkit.hooks import Hook\n\n\n'
            f'class Mine(Hook):\n    def before_run(self, runner):\n        {body}\n'
        )
        (project / 'hooked.py').write_text(
            "_base_ = 'cfg.py'\ncustom_hooks = [dict(type='{{ fileDirname }}/hook.py:Mine')]\n"
        )
        code, said, _ = train(config='hooked.py', work_dir=f'run{len(body)}')
        assert code == 1
        assert 'hook.py", line 6, in before_run' in said


@pytest.mark.parametrize(
    ('error', 'found'),
    [
        (ToldByFirstRank('rank 0 has failed: KeyError(1)'), 'rank 0 has failed: KeyError(1)'),
        (SystemExit('enough'), 'SystemExit: enough'),
        (SystemExit(0), 'SystemExit: 0'),
        (CommandLineExit(0), None),
    ],
)
def test_torchruns_summary_has_the_error_of_every_kind_of_end(error, found, tmp_path, monkeypatch):
    file = tmp_path / 'error.json'
    monkeypatch.setenv('TORCHELASTIC_ERROR_FILE', str(file))

    def main(argv):
        raise error

    with suppress(SystemExit):
        assert usage_checked(main)(None) == 1
    assert file.exists() == (found is not None)
    assert found is None or found in file.read_text()


def test_torchruns_summary_begins_with_the_users_code(tmp_path, monkeypatch):
    file = tmp_path / 'error.json'
    monkeypatch.setenv('TORCHELASTIC_ERROR_FILE', str(file))

    def main(argv):
        raise ValueError('boom')

    assert usage_checked(main)(None) == 1
    trace = json.loads(file.read_text())['message']['extraInfo']['py_callstack']
    assert [line.split(', in ')[1] for line in trace.splitlines() if 'File' in line] == ['main']


def test_a_rank_says_which_one_it_is(capsys, monkeypatch):
    monkeypatch.setenv('RANK', '1')
    monkeypatch.setenv('WORLD_SIZE', '2')
    assert ending(ValueError('boom'), capsys)[1].endswith('error: rank 1: boom\n')
    assert ending(ToldByFirstRank('no'), capsys)[1] == 'rank 1 ends: rank 0 has failed, and says why\n'
    lost = ending(PeerFailed('rank 0 has failed: KeyError: 3'), capsys)[1]
    assert lost.endswith('\nrank 1 ends: rank 0 has failed: KeyError: 3\n')


def test_compiled_code_of_a_package_is_not_the_users():
    assert not is_of_user('numpy/random/mtrand.pyx')
    assert is_of_user('train.py')
