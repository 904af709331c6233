"""``runnerkit verify``."""

import json
import shutil

import pytest
import torch
from moments import train_kind, write_project

from runnerkit.cli.main import main


@pytest.fixture(scope='module')
def work_dir(tmp_path_factory):
    return train_kind('iterations', tmp_path_factory.mktemp('verified'))[0]


def test_a_run_that_reproduces(work_dir, capsys):
    assert main(['verify', str(work_dir), '--all']) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith('iterations')] == [
        'iterations 0 to 14, iter_14.pth (everything): equal',
        'iterations 14 to 20, iter_20.pth (everything): equal',
    ]
    assert lines[-1] == f'{work_dir} reproduces here'


def test_a_run_that_does_not(work_dir, tmp_path, capsys):
    run = shutil.copytree(work_dir, tmp_path / 'run', symlinks=True)
    content = torch.load(run / 'iter_20.pth', weights_only=True)
    content['state_dict']['head.bias'] += 1
    torch.save(content, run / 'iter_20.pth')
    assert main(['verify', str(run), '--json']) == 3
    found = json.loads(capsys.readouterr().out)
    assert found['is_equal'] is False
    (stretch,) = found['stretches']
    assert (stretch['begin'], stretch['end'], stretch['is_equal']) == (14, 20, False)
    assert stretch['difference'] == "state_dict['head.bias'] differs in 1 of 1 values, by up to 1"


def test_wrong_use(work_dir, tmp_path, capsys):
    assert main(['verify', str(tmp_path)]) == 2
    assert 'no work dir of a run' in capsys.readouterr().err
    run = shutil.copytree(work_dir, tmp_path / 'run', symlinks=True)
    (run / '.flow.json').write_text(json.dumps({**json.loads((run / '.flow.json').read_text()), 'seal': 'x'}))
    assert main(['verify', str(run)]) == 1
    assert '--trust' in capsys.readouterr().err
    assert main(['verify', str(run), '--trust']) == 0
    assert 'Perhaps not exact' in capsys.readouterr().out


def train_and_verify(folder):
    """On each of two ranks that torch's launcher has started; returns the exit code."""
    config = write_project(folder)
    words = ['train', str(config), '--work-dir', str(folder / 'run'), '--launcher', 'pytorch']
    code = main(words) or main(['verify', str(folder / 'run'), '--launcher', 'pytorch', '--json'])
    return code or main(['replay', str(folder / 'run'), '--to', '7', '--launcher', 'pytorch'])


def test_as_many_ranks_as_the_run_had(launch, tmp_path, capfd):
    launch(train_and_verify, tmp_path)
    said = capfd.readouterr().out
    assert said.count('"is_equal": true') == 2
    assert said.count('All log lines on the way are equal.') == 1
    assert main(['verify', str(tmp_path / 'run')]) == 1
    assert 'had 2 ranks, and this is a replay on 1' in capfd.readouterr().err
