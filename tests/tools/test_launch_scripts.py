"""tools/dist_train.sh, dist_test.sh and slurm_train.sh: what they start; `test_docs_blocks` trains and tests."""

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support import free_port

TOOLS = Path(__file__).resolve().parents[2] / 'tools'

CONFIG = """
model = dict(type='Supervised', model=[dict(type='Linear', in_features=4, out_features=1)], loss=dict(type='MSELoss'))
dataset = '{{ fileDirname }}/points.py:Points'
data = dict(
    samples_per_gpu=2, workers_per_gpu=0, train=dict(type=dataset), val=dict(type=dataset), test=dict(type=dataset)
)
optimizer = dict(type='SGD', lr=0.1)
runner = dict(type='EpochBasedRunner', max_epochs=2)
custom_hooks = [dict(type='{{ fileDirname }}/points.py:Breaks')]
auto_scale_lr = dict(base_batch_size=2)
flow = dict(terminal=None)
seed = 3
"""

POINTS = """
import os
import torch
from torch.utils.data import Dataset
from runnerkit.hooks import Hook


class Points(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.full((4,), i / 8), torch.ones(1)


class Breaks(Hook):
    def after_train_iter(self, runner):
        if 'BREAK' in os.environ and runner.rank == 1:
            raise ZeroDivisionError('a bug of the user')
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / 'cfg.py').write_text(CONFIG)
    (tmp_path / 'points.py').write_text(POINTS)
    return tmp_path


def program(path, text):
    """A program of its own, in the place of one that is not here."""
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return str(path)


def run(name, *arguments, **variables):
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(('SLURM', 'MASTER'))}
    environment = {**inherited, 'PYTHON': sys.executable, 'OMP_NUM_THREADS': '1', **variables}
    return subprocess.run(
        [str(TOOLS / name), *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.thorough  # tests/utils/test_exceptions.py
@pytest.mark.distributed
def test_torchruns_summary_has_the_traceback_of_the_rank_that_failed(folder):
    ended = run('dist_train.sh', folder / 'cfg.py', 2, '--work-dir', folder / 'run', PORT=free_port(), BREAK='1')
    assert ended.returncode == 1
    _, _, summary = ended.stderr.partition('Root Cause')
    assert "raise ZeroDivisionError('a bug of the user')" in summary
    assert 'error: rank 1: a bug of the user' in ended.stderr
    assert 'rank 0 ends: ' in ended.stderr, 'rank 0 knows why it ends, although torchrun sends it SIGTERM'


def test_several_machines(tmp_path):
    shows = program(tmp_path / 'python', '#!/bin/sh\nfor word; do echo "$word"; done\necho "path $PYTHONPATH"\n')
    variables = {'NNODES': '4', 'NODE_RANK': '3', 'MASTER_ADDR': 'node0', 'PORT': '1234', 'MAX_RESTARTS': '2'}
    words = run('dist_train.sh', 'a b.py', '8', '--seed', '1', PYTHON=shows, **variables).stdout.splitlines()
    launcher = ['--nnodes=4', '--node_rank=3', '--nproc_per_node=8', '--master_addr=node0', '--master_port=1234']
    program_and_its = [str(TOOLS / 'train.py'), 'a b.py', '--launcher', 'pytorch', '--seed', '1']
    assert words[:-1] == ['-m', 'torch.distributed.run', *launcher, '--max_restarts=2', *program_and_its]
    assert words[-1].split()[1].split(':')[0] == str(TOOLS.parent)
    words = run('dist_test.sh', 'a.py', 'b.pth', '8', '--out', 'c.json', PYTHON=shows, **variables).stdout.splitlines()
    program_and_its = [str(TOOLS / 'test.py'), 'a.py', 'b.pth', '--launcher', 'pytorch', '--out', 'c.json']
    assert words[:-1] == ['-m', 'torch.distributed.run', *launcher, '--max_restarts=2', *program_and_its]


@pytest.mark.parametrize('call', [['dist_train.sh', 'cfg.py', '2'], ['dist_test.sh', 'cfg.py', 'x.pth', '2']])
def test_a_port_that_is_taken_is_told_in_one_line(tmp_path, call):
    python = tmp_path / 'python'
    program(python, '#!/bin/sh\necho torchrun has been called\n')
    with socket.create_server(('127.0.0.1', 0)) as server:
        port = server.getsockname()[1]
        env = {**os.environ, 'PYTHON': str(python), 'PORT': str(port)}
        command = [TOOLS / call[0], *call[1:]]
        run = subprocess.run(command, env=env, capture_output=True, text=True)
        assert run.returncode == 1
        assert run.stdout == ''
        assert run.stderr.startswith(f'error: the port {port} is taken')
        assert f'PORT={port + 1} ' in run.stderr
        # The port of another machine is none of this one's business.
        run = subprocess.run(command, env={**env, 'NODE_RANK': '1'}, capture_output=True, text=True)
    assert run.stdout == 'torchrun has been called\n'


@pytest.mark.thorough  # test_several_machines
@pytest.mark.distributed
def test_slurm(folder):
    """A srun that starts two processes here, as Slurm's would on two machines."""
    (folder / 'bin').mkdir()
    hosts = '[ "$*" = "show hostname node[1-2]" ] && printf "localhost\\nnode2\\n"'
    program(folder / 'bin' / 'scontrol', f'#!/bin/sh\n{hosts}\n')
    srun = """#!/bin/bash
while [[ $1 == --* ]]; do echo "$1"; shift; done
export SLURM_NTASKS=2 SLURM_NODELIST='node[1-2]' SLURM_LOCALID=0
SLURM_PROCID=1 "$@" & other=$!
SLURM_PROCID=0 "$@" || exit
wait $other
"""
    program(folder / 'bin' / 'srun', srun)
    path = f'{folder / "bin"}:{os.environ["PATH"]}'
    arguments = ('debug', 'my_job', folder / 'cfg.py', folder / 'run', '--seed', '1')
    sizes = {'GPUS': '2', 'GPUS_PER_NODE': '8', 'CPUS_PER_TASK': '3', 'SRUN_ARGS': '--qos=a --x'}
    ended = run('slurm_train.sh', *arguments, PATH=path, MASTER_PORT=free_port(), **sizes)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[:9] == [
        '--partition=debug',
        '--job-name=my_job',
        '--gres=gpu:2',
        '--ntasks=2',
        '--ntasks-per-node=2',
        '--cpus-per-task=3',
        '--kill-on-bad-exit=1',
        '--qos=a',
        '--x',
    ]
    assert 'rank 0 of 2' in ended.stderr
    assert (folder / 'run' / 'epoch_2.pth').exists()


@pytest.mark.parametrize('name', ['dist_train.sh', 'dist_test.sh', 'slurm_train.sh'])
def test_without_arguments_the_usage_is_shown(name):
    ended = run(name)
    assert ended.returncode == 2
    assert f'tools/{name} ' in ended.stderr
    assert ended.stdout == ''
