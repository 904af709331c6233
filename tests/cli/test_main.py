"""The console script."""

import subprocess
import sys

import pytest

from runnerkit.cli.main import COMMANDS, main
from runnerkit.version import __version__


def test_help_and_version(capsys):
    assert main(['--help']) == 0
    out = capsys.readouterr().out
    assert all(command in out for command in COMMANDS)
    assert main(['--version']) == 0
    assert capsys.readouterr().out == f'runnerkit {__version__}\n'


@pytest.mark.parametrize(
    'words, text',
    [
        ([], 'a command is needed'),
        (['trian'], "there is no command 'trian'; did you mean 'train'?"),
        (['zzz'], "no command 'zzz'"),
    ],
)
def test_wrong_commands(words, text, capsys):
    assert main(words) == 2
    assert text in capsys.readouterr().err


def test_commands_are_handed_on(project, capsys):
    assert main(['print-config', str(project / 'cfg.py')]) == 0
    assert "optimizer = dict(type='SGD'" in capsys.readouterr().out
    assert main(['train', 'nowhere.py']) == 2


def test_as_a_module():
    done = subprocess.run([sys.executable, '-m', 'runnerkit', '--version'], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f'runnerkit {__version__}\n')
