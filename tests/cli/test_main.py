"""The console script."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from runnerkit.cli.main import COMMANDS, main, say_loading
from runnerkit.version import __version__

ROOT = Path(__file__).parents[2]


def test_help_and_version(capsys):
    assert main(['--help']) == 0
    out = capsys.readouterr().out
    assert all(command in out for command in COMMANDS)
    assert main(['--version']) == 0
    assert capsys.readouterr().out == f'runnerkit {__version__}\n'


@pytest.mark.parametrize(
    'words, is_terminal, rank, said',
    [
        (['train', 'x.py'], True, None, 'runnerkit train: loading torch …\n'),
        (['train', 'x.py'], True, '0', 'runnerkit train: loading torch …\n'),
        (['train', 'x.py'], True, '1', ''),
        (['train', 'x.py'], False, None, ''),
        (['train', '--help'], True, None, ''),
        (['runs', 'x'], True, None, ''),
    ],
)
def test_a_line_before_torch_is_loaded(words, is_terminal, rank, said, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, 'isatty', lambda: is_terminal)
    monkeypatch.delitem(sys.modules, 'torch', raising=False)
    monkeypatch.delenv('RANK', raising=False)
    if rank:
        monkeypatch.setenv('RANK', rank)
    say_loading(words)
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    'words, text',
    [
        ([], 'a command is missing'),
        (['trian'], "unknown command 'trian'; did you mean 'train'?"),
        (['zzz'], "unknown command 'zzz'"),
        (['cfg.py', '--seed', '3'], 'use runnerkit train cfg.py --seed 3'),
        (['--seed', '3'], 'flags follow a command'),
    ],
)
def test_wrong_commands(words, text, capsys):
    assert main(words) == 2
    assert text in capsys.readouterr().err


def test_commands_are_handed_on(project, capsys):
    assert main(['print-config', str(project / 'cfg.py')]) == 0
    assert "optimizer = dict(type='SGD'" in capsys.readouterr().out
    assert main(['train', 'nowhere.py']) == 2


@pytest.mark.parametrize('command', COMMANDS)
def test_each_help_names_its_command(command, capsys):
    with pytest.raises(SystemExit):
        main([command, '--help'])
    assert capsys.readouterr().out.startswith(f'usage: runnerkit {command} ')


@pytest.mark.parametrize('tool', ['train', 'test', 'print_config'])
def test_each_tools_help_names_its_file(tool, capsys, monkeypatch):
    monkeypatch.setattr(sys, 'argv', [f'/somewhere/{tool}.py', '--help'])
    with pytest.raises(SystemExit):
        runpy.run_path(str(ROOT / 'tools' / f'{tool}.py'), run_name='__main__')
    assert capsys.readouterr().out.startswith(f'usage: tools/{tool}.py ')


def test_as_a_module():
    done = subprocess.run([sys.executable, '-m', 'runnerkit', '--version'], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f'runnerkit {__version__}\n')
