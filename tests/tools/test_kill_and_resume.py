"""The recording of a killed and resumed training shows what its script shows today."""

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from printed import check_printed
from test_docs_blocks import text_of

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / 'tools' / 'kill_and_resume.py'


def lines_of(recording):
    return [html.unescape(text) for text in re.findall(r'<text [^>]*>(.*?)</text>', recording)]


@pytest.mark.thorough  # tests/cli/test_train.py interrupts and resumes the demo
def test_the_recording_is_what_the_config_of_the_readme_shows(tmp_path):
    (tmp_path / 'configs').symlink_to(ROOT / 'configs')
    (tmp_path / 'my_config.py').write_text(text_of('README.md', '# my_config.py'))
    own = {'PYTHONPATH': str(ROOT), 'OMP_NUM_THREADS': '1', 'CUDA_VISIBLE_DEVICES': ''}
    command = [sys.executable, os.fspath(SCRIPT), 'my_config.py', '--svg', 'new.svg']
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | own, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == 'equal, bit for bit: True'

    def form(line):  # names of logs and places hold the time and the folder
        return re.sub(r'\d{8}_\d{6}', 'DATE', re.sub(r'(?<= )/\S*/', '', line))[:90]

    # The kill may come before or after the line's record in the other log, which the resumed run then moves away.
    shown, new = (
        [form(line) for line in lines_of(path.read_text(encoding='utf-8')) if 'beyond' not in line]
        for path in (ROOT / 'docs/images/kill_and_resume.svg', tmp_path / 'new.svg')
    )
    if shown[1] != new[1]:  # the scores: another processor has other losses, and perhaps another best epoch
        check_printed(shown[1], new[1], 'kill_and_resume.svg')
        shown, new = ([line for line in lines if line.startswith('$')] for lines in (shown, new))
    assert len(shown) == len(new)
    check_printed('\n'.join(shown), '\n'.join(new), 'kill_and_resume.svg')


@pytest.mark.thorough  # the other tests of this file
def test_a_training_that_fails_is_an_error(tmp_path):
    (tmp_path / 'cfg.py').write_text('lr = 1')
    command = [sys.executable, os.fspath(SCRIPT), 'cfg.py']
    own = {'PYTHONPATH': str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | own, capture_output=True, text=True)
    assert done.returncode == 1
    assert 'ended with exit code' in done.stderr
