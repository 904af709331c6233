"""Completion scripts, in real shells where they are installed."""

import shutil
import subprocess

import pytest

from runnerkit.cli.completion import SHELLS, main
from runnerkit.cli.main import COMMANDS


def printed(shell, capsys):
    assert main([shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize('shell', SHELLS)
def test_every_command_and_flag_is_in_the_script(shell, capsys):
    text = printed(shell, capsys)
    for word in [*COMMANDS, 'auto-resume', 'cfg-options', 'split', 'warmup']:
        assert word in text
    if shutil.which(shell):
        checked = subprocess.run([shell, '-n'], input=text, capture_output=True, text=True)
        assert (checked.returncode, checked.stderr) == (0, '')


def test_bash_completes_commands_flags_choices_files_and_folders(capsys, tmp_path):
    script = tmp_path / 'script.sh'
    script.write_text(printed('bash', capsys))
    (tmp_path / 'cfg.py').write_text('')
    (tmp_path / 'runs').mkdir()

    def complete(*words):
        lines = [
            f'cd {tmp_path}; source {script}',
            f'COMP_WORDS=({" ".join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}',
            '_shtab_runnerkit 2> /dev/null; printf "%s\\n" "${COMPREPLY[@]}"',
        ]
        done = subprocess.run(['bash', '-c', '\n'.join(lines)], capture_output=True, text=True)
        return {reply.strip() for reply in done.stdout.split('\n')} - {''}

    assert complete('runnerkit', 'pr') == {'predict', 'profile', 'print-config'}
    assert complete('runnerkit', 'train', 'c') == {'cfg.py'}
    assert complete('runnerkit', 'train', 'cfg.py', '--au') == {'--auto-resume', '--auto-scale-lr'}
    assert complete('runnerkit', 'train', 'cfg.py', '--launcher', 's') == {'slurm'}
    assert complete('runnerkit', 'train', 'cfg.py', '--work-dir', '') == {'runs'}


def test_another_shell_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(['tcsh'])
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err
