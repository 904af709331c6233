"""``runnerkit replay``."""

import io
import json
import os
import signal
import subprocess
import sys

import planted
import pytest
import torch
from moments import quietly, same, train_kind

from runnerkit.cli.main import main


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """A work dir, and what was seen of its iterations."""
    return train_kind('epochs', tmp_path_factory.mktemp('replayed'))


def test_the_moment_and_its_iteration_are_shown(trained, capsys):
    work_dir, seen = trained
    assert main(['replay', str(work_dir), '--to', '[2][3]']) == 0
    said = capsys.readouterr().out
    names = ', '.join(f'{i} ({i}.png)' for i in seen[8]['batch']['i'].tolist())
    assert said.startswith(f'iteration 8 ([2][3] in the log), replayed from 0 iterations on\nsamples: {names}\n')
    assert f'loss: {seen[8]["loss"][""].item():.4g}\n' in said
    assert [line.split()[0] for line in said.splitlines()[-4:-1]] == ['model', 'body', 'head']
    assert said.endswith('All log lines on the way are equal.\n')


def test_the_batch_and_a_checkpoint_are_written(trained, tmp_path, capsys):
    work_dir, seen = trained
    batch, file = tmp_path / 'batch.pth', tmp_path / 'moment.pth'
    assert main(['replay', str(work_dir), '--to', '20', '--batch', str(batch), '--save', str(file)]) == 0
    assert f'checkpoint: {file}\n' in capsys.readouterr().out
    assert same(torch.load(batch), seen[20]['batch'])
    assert same(torch.load(file, weights_only=True)['state_dict'], seen[20]['weights'])


def test_a_row_for_each_of_some_iterations(trained, capsys):
    work_dir, seen = trained
    assert main(['replay', str(work_dir), '--to', '21', '--for', '9']) == 0
    *said, ended, _ = capsys.readouterr().out.splitlines()
    assert ended == 'The run ends after 24 iterations: 3 of 9 rows.'
    rows = [line.split() for line in said[-4:]]
    assert rows[0][:4] == ['iteration', 'epoch', 'lr', 'loss']
    assert [(row[0], row[3]) for row in rows[1:]] == [
        (str(number), f'{seen[number]["loss"][""].item():.4g}') for number in (21, 22, 23)
    ]


def test_a_hook_of_the_users_own(trained, tmp_path, capsys):
    file = tmp_path / 'mine.py'
    file.write_text(
        'from runnerkit.hooks import Hook\n\n\nclass Mine(Hook):\n'
        '    def after_train_iter(self, runner):\n        print("seen", runner.iter)\n'
    )
    assert main(['replay', str(trained[0]), '--to', '19', '--hook', f'{file}:Mine']) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if 'seen' in line] == ['seen 18', 'seen 19']


def test_python_with_the_moment(trained, monkeypatch, capsys):
    typed = 'out = step()\nprint("loss", out["loss"].item(), run.iter, len(batch))\n'
    monkeypatch.setattr(sys, 'stdin', io.StringIO(typed))
    work_dir, seen = trained
    assert main(['replay', str(work_dir), '--to', '4', '--shell']) == 0
    assert f'loss {seen[4]["loss"][""].item()} 5 3' in capsys.readouterr().out


def project(folder, old, new):
    """A project with its code changed."""
    assert old in planted.CODE
    return planted.project(folder, planted.CODE.replace(old, new, 1))


def test_an_iteration_in_which_the_run_diverged_is_shown(tmp_path, capsys):
    config = project(tmp_path, 'x=x + (i == self.changed) * 1e-6', 'x=x * (float("nan") if i == self.changed else 1)')
    options = {'custom_hooks': [dict(type='NonFiniteHook')], 'data.train.changed': 5}
    with pytest.raises(FloatingPointError):
        quietly(planted.train, config, tmp_path / 'run', options)
    last = json.loads((tmp_path / 'run' / 'run.json').read_text())['starts'][0]['iterations_at_end'] - 1
    capsys.readouterr()
    assert main(['replay', str(tmp_path / 'run'), '--to', str(last)]) == 5
    said = capsys.readouterr()
    assert '\nloss: nan\n' in said.out
    assert f'runnerkit replay {tmp_path}/run --to' in said.err
    assert 'runnerkit-replay-' not in said.err  # the scratch folder, which is gone
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize(('number', 'code'), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_no_scratch_folder(tmp_path, number, code):
    out = '        out = self.head('
    pause = '        __import__("time").sleep(float(__import__("os").environ.get("PAUSE", 0)))\n'
    config = project(tmp_path, out, f'        print("step", flush=True)\n{pause}{out}')
    quietly(planted.train, config, tmp_path / 'run')
    (tmp_path / 'scratch').mkdir()
    words = [sys.executable, '-m', 'runnerkit', 'replay', str(tmp_path / 'run'), '--to', '7']
    variables = {**os.environ, 'TMPDIR': str(tmp_path / 'scratch'), 'PAUSE': '1'}
    pipes = {'stdout': subprocess.PIPE, 'stderr': subprocess.DEVNULL, 'text': True}
    with subprocess.Popen(words, env=variables, **pipes) as process:
        assert process.stdout.readline() == 'step\n'
        process.send_signal(number)
        assert process.wait(timeout=300) == code
    assert [path for path in (tmp_path / 'scratch').iterdir() if path.name.startswith('runnerkit')] == []


def test_a_log_that_differs_has_an_exit_code_of_its_own(trained, tmp_path, capsys):
    import shutil

    run = shutil.copytree(trained[0], tmp_path / 'run', symlinks=True)
    (log,) = run.glob('*.log.json')
    log.write_text(log.read_text().replace('"loss": 0.', '"loss": 1.'))
    assert main(['replay', str(run), '--to', '3']) == 3
    assert 'DIFFERENT: the log line at 2 iterations (train) differs: loss was 1.' in capsys.readouterr().out


@pytest.mark.parametrize(
    ('words', 'code', 'said'),
    [
        (['{run}', '--to', '24'], 2, 'has trained 24 iterations, so it may be 0 to 23'),
        (['{run}', '--to', '[9][1]'], 2, 'it may be 0 to 23'),
        (['{run}', '--to', 'soon'], 2, 'such as [3][50]'),
        (['{run}/code', '--to', '1'], 2, 'code is no work dir of a run'),
        (['{run}/none', '--to', '1'], 2, 'error: no such folder'),
        (['{run}', '--to', '1', '--for', '2', '--shell'], 2, 'not allowed with'),
        (['{run}'], 2, '--to'),
        (['{run}', '--to', '1', '--batch', '/none/b.pth'], 2, 'no such folder'),
        (['{run}', '--to', '1', '--for', '0'], 2, 'at least 1'),
    ],
)
def test_wrong_use(trained, capsys, words, code, said):
    try:
        found = main(['replay', *(word.replace('{run}', str(trained[0])) for word in words)])
    except SystemExit as error:
        found = error.code
    assert found == code
    assert said in capsys.readouterr().err
