"""Joining by each launcher, with the environment that it makes."""

import logging
import os
import socket
import stat
import subprocess
import sys
from datetime import timedelta

import pytest
import torch

from runnerkit.distributed import init_dist, shutdown
from runnerkit.utils.logging import close_logger

JOIN = """
import sys, torch, torch.distributed as dist
from runnerkit.distributed import get_dist_info, init_dist, shutdown
init_dist(sys.argv[1], **eval(sys.argv[2]))
print(get_dist_info(), dist.get_backend())
shutdown()
shutdown()
assert get_dist_info() == (0, 1)
"""

VARIABLES = ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT', 'OMPI_COMM_WORLD_RANK', 'SLURM_PROCID')


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return str(probe.getsockname()[1])


def join(launcher, environment, **kwargs):
    inherited = {
        key: value for key, value in os.environ.items() if key not in VARIABLES and not key.startswith('SLURM')
    }
    return subprocess.run(
        [sys.executable, '-c', JOIN, launcher, repr(kwargs)],
        env={**inherited, **environment, 'OMP_NUM_THREADS': '1'},
        capture_output=True,
        text=True,
    )


def test_torchrun_and_the_backend_without_gpu(port):
    env = {'RANK': '0', 'LOCAL_RANK': '0', 'WORLD_SIZE': '1', 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': port}
    ended = join('pytorch', env, timeout=30)
    assert ended.returncode == 0, ended.stderr
    if torch.cuda.is_available():
        assert ended.stdout == '(0, 1) nccl\n'
    else:
        assert ended.stdout == '(0, 1) gloo\n'
        assert 'gloo instead of nccl' in ended.stderr


@pytest.fixture
def joined(monkeypatch):
    """What would be joined, without joining it; the environment is restored afterwards."""
    for name in [*VARIABLES, *(key for key in os.environ if key.startswith('SLURM'))]:
        monkeypatch.setenv(name, 'restored by monkeypatch')
        monkeypatch.delenv(name)
    calls = []
    monkeypatch.setattr('torch.distributed.init_process_group', lambda *args, **kwargs: calls.append((args, kwargs)))
    level = logging.getLogger('runnerkit').level
    yield calls
    close_logger('runnerkit')  # which may have learned a rank that this process has not
    logging.getLogger('runnerkit').setLevel(level)


def test_slurm_with_its_list_of_machines_and_a_given_port(joined, monkeypatch, tmp_path):
    scontrol = tmp_path / 'scontrol'
    scontrol.write_text('#!/bin/sh\n[ "$*" = "show hostname node[1-2]" ] && printf "node1\\nnode2\\n"\n')
    scontrol.chmod(scontrol.stat().st_mode | stat.S_IEXEC)
    env = {'SLURM_PROCID': '3', 'SLURM_NTASKS': '4', 'SLURM_NODELIST': 'node[1-2]', 'SLURM_LOCALID': '1'}
    for name, value in {**env, 'PATH': f'{tmp_path}:{os.environ["PATH"]}'}.items():
        monkeypatch.setenv(name, value)
    init_dist('slurm', port=1234, timeout=2)
    names = ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT')
    assert [os.environ[name] for name in names] == ['3', '1', '4', 'node1', '1234']
    backend = 'nccl' if torch.cuda.is_available() else 'gloo'
    assert joined == [((), {'backend': backend, 'timeout': timedelta(seconds=2)})]


def test_slurm_without_its_tools_says_what_to_set(joined, monkeypatch, tmp_path):
    scontrol = tmp_path / 'scontrol'
    scontrol.write_text('#!/bin/sh\necho "slurm_load_nodes error: no controller"\n')
    scontrol.chmod(scontrol.stat().st_mode | stat.S_IEXEC)
    env = {'SLURM_PROCID': '0', 'SLURM_NTASKS': '1', 'SLURM_NODELIST': 'node1'}
    for name, value in {**env, 'PATH': f'{tmp_path}:{os.environ["PATH"]}'}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RuntimeError, match='first of node1, its scontrol answers .*no controller.*: set MASTER_ADDR'):
        init_dist('slurm')
    assert joined == []


def test_the_backend_stays_where_there_are_gpus(joined, monkeypatch):
    current = []
    monkeypatch.setattr('torch.cuda.device_count', lambda: 2)
    monkeypatch.setattr('torch.cuda.set_device', current.append)
    monkeypatch.setenv('RANK', '5')
    init_dist('pytorch')
    assert joined == [((), {'backend': 'nccl'})]
    assert current == [1]


@pytest.mark.parametrize('job, meets_at', [({'SLURM_JOB_ID': '123456'}, '23456'), ({}, '29500')])
def test_slurm_jobs_meet_at_a_port_that_all_ranks_know(joined, monkeypatch, job, meets_at):
    env = {'SLURM_PROCID': '5', 'SLURM_NTASKS': '8', 'MASTER_ADDR': 'here', **job}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    init_dist('slurm', backend='gloo')
    assert [os.environ[name] for name in ('RANK', 'WORLD_SIZE', 'MASTER_PORT')] == ['5', '8', meets_at]
    assert joined == [((), {'backend': 'gloo'})]


def test_mpi_has_a_default_port(joined, monkeypatch):
    for name in ('RANK', 'LOCAL_RANK', 'SIZE'):
        monkeypatch.setenv(f'OMPI_COMM_WORLD_{name}', '1')
    with pytest.raises(KeyError, match='The environment variable MASTER_ADDR is not set'):
        init_dist('mpi')
    monkeypatch.setenv('MASTER_ADDR', 'here')
    init_dist('mpi', backend='gloo')
    assert [os.environ[name] for name in ('RANK', 'LOCAL_RANK', 'MASTER_PORT')] == ['1', '1', '29500']


@pytest.mark.parametrize('launcher, variable', [('pytorch', 'RANK'), ('slurm', 'SLURM_PROCID')])
def test_outside_of_the_launcher(joined, launcher, variable):
    with pytest.raises(KeyError, match=f'{variable} is not set, which launcher={launcher!r} needs'):
        init_dist(launcher)
    assert joined == []


def test_unknown_launcher():
    with pytest.raises(ValueError, match="Invalid launcher type: 'torchrun'; choose one of 'pytorch', 'slurm', 'mpi'"):
        init_dist('torchrun')


def test_leaving_when_alone():
    shutdown()
