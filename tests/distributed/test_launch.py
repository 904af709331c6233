"""Joining by each launcher, with the environment that it makes."""

import logging
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
import torch
from forks import Fork
from support import free_port
from torch import distributed as dist
from torch.distributed import TCPStore

from runnerkit.distributed import get_dist_info, init_dist, launch, reduce_sums, shutdown
from runnerkit.distributed.devices import check_backend
from runnerkit.distributed.launch import meet
from runnerkit.utils.exceptions import ToldByFirstRank
from runnerkit.utils.logging import close_logger, get_logger

JOIN = """
import sys, torch, torch.distributed as dist
from runnerkit.distributed import get_dist_info, init_dist, shutdown
init_dist(sys.argv[1], **eval(sys.argv[2]))
print(get_dist_info(), dist.get_backend())
shutdown()
shutdown()
assert get_dist_info() == (0, 1)
"""

SUMS = """
import sys, torch, torch.distributed as dist
from runnerkit.distributed import init_dist, shutdown
for number in range(30):
    init_dist('pytorch', backend='gloo', init_method=f'file://{sys.argv[1]}/{number}', rank=0, world_size=1)
    for _ in range(20):
        summed = torch.ones(1000)
        summed.mine = True  # its Python object lives as long as the tensor
        work = dist.all_reduce(summed, async_op=True)
        del summed
        work.wait()
        del work
    shutdown()
"""

VARIABLES = ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT', 'OMPI_COMM_WORLD_RANK', 'SLURM_PROCID')


def test_leaving_a_group_does_not_wait_for_a_thread_that_waits_for_the_interpreter(tmp_path):
    environment = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    environment.update(RANK='0', WORLD_SIZE='1')
    subprocess.run([sys.executable, '-c', SUMS, str(tmp_path)], env=environment, timeout=90, check=True)


def join(folder, launcher, environment, **kwargs):
    (folder / 'join.py').write_text(JOIN)
    inherited = {
        key: value for key, value in os.environ.items() if key not in VARIABLES and not key.startswith('SLURM')
    }
    return subprocess.run(
        [sys.executable, folder / 'join.py', launcher, repr(kwargs)],
        env={**inherited, **environment, 'OMP_NUM_THREADS': '1'},
        capture_output=True,
        text=True,
    )


def said_by_us(text):
    """Its lines without those that Gloo prints on stdout with torch 2.9."""
    return [line for line in text.splitlines() if not line.startswith('[Gloo] ')]


def test_torchrun_and_the_backend_without_gpu(warm, tmp_path):
    env = {'RANK': '0', 'LOCAL_RANK': '0', 'WORLD_SIZE': '1', 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': free_port()}
    ended = join(tmp_path, 'pytorch', env, timeout=300)
    assert ended.returncode == 0, ended.stderr
    if torch.cuda.is_available():
        assert ended.stdout == '(0, 1) nccl\n'
    else:
        assert said_by_us(ended.stdout) == ['(0, 1) gloo']
        assert 'through gloo instead of nccl' in ended.stderr


@pytest.fixture
def joined(monkeypatch):
    """What would be joined, without meeting anybody; the environment is restored afterwards."""
    for name in [*VARIABLES, *(key for key in os.environ if key.startswith('SLURM'))]:
        monkeypatch.setenv(name, 'restored by monkeypatch')
        monkeypatch.delenv(name)
    calls = []

    class Store:
        def set_timeout(self, timeout):
            calls.append(timeout)

    def meet(*args):
        calls.append(args)
        return Store()

    def init(backend, store=None, **kwargs):
        calls.append({'backend': backend, **kwargs})

    monkeypatch.setattr('runnerkit.distributed.launch.meet', meet)
    monkeypatch.setattr('torch.distributed.init_process_group', init)
    level = logging.getLogger('runnerkit').level
    yield calls
    close_logger('runnerkit')  # which may have learned a rank that this process has not
    logging.getLogger('runnerkit').setLevel(level)


def set_all(monkeypatch, **variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def scontrol(folder, script):
    """Slurm's tool, which runs this."""
    path = folder / 'scontrol'
    path.write_text(f'#!/bin/sh\n{script}\n')
    path.chmod(path.stat().st_mode | stat.S_IEXEC)


def test_slurm_with_its_list_of_machines_and_a_given_port(joined, monkeypatch, tmp_path):
    scontrol(tmp_path, '[ "$*" = "show hostname node[1-2]" ] && printf "node1\\nnode2\\n"')
    env = {'SLURM_PROCID': '3', 'SLURM_NTASKS': '4', 'SLURM_NODELIST': 'node[1-2]', 'SLURM_LOCALID': '1'}
    set_all(monkeypatch, **env, PATH=f'{tmp_path}:{os.environ["PATH"]}')
    init_dist('slurm', port=1234, timeout=2)
    names = ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT')
    assert [os.environ[name] for name in names] == ['3', '1', '4', 'node1', '1234']
    backend = 'nccl' if torch.cuda.is_available() else 'gloo'
    seconds = timedelta(seconds=2)
    group = {'backend': backend, 'rank': 3, 'world_size': 4, 'timeout': seconds}
    assert joined == [(3, 4, 'node1', 1234, 300.0, False), seconds, group]


def test_slurm_without_its_tools_says_what_to_set(joined, monkeypatch, tmp_path):
    scontrol(tmp_path, 'echo "slurm_load_nodes error: no controller"')
    env = {'SLURM_PROCID': '0', 'SLURM_NTASKS': '1', 'SLURM_NODELIST': 'node1'}
    set_all(monkeypatch, **env, PATH=f'{tmp_path}:{os.environ["PATH"]}')
    with pytest.raises(RuntimeError, match='first of node1, its scontrol answers .*no controller.*: set MASTER_ADDR'):
        init_dist('slurm')
    assert joined == []


@pytest.mark.parametrize('kind, backend', [('cuda', 'nccl'), ('xpu', 'xccl'), ('mps', 'gloo'), (None, 'gloo')])
def test_the_backend_and_the_device_are_those_of_the_accelerator(joined, monkeypatch, kind, backend):
    current = []
    monkeypatch.setattr('runnerkit.distributed.launch.accelerator', lambda: kind)
    monkeypatch.setattr('runnerkit.distributed.launch.device_count', lambda kind: 2)
    monkeypatch.setattr('runnerkit.distributed.launch.use_device', lambda *device: current.append(device))
    set_all(monkeypatch, RANK='5', WORLD_SIZE='8', MASTER_ADDR='here', MASTER_PORT='7')
    init_dist('pytorch', join_within=9, end_within=20, hang_after=None)
    assert joined[0] == (5, 8, 'here', 7, 9, False)
    assert joined[2] == {'backend': backend, 'rank': 5, 'world_size': 8}
    assert current == ([] if kind is None else [(kind, 1)])


def test_under_torchrun_the_store_is_there(joined, monkeypatch):
    where = {'MASTER_ADDR': 'here', 'MASTER_PORT': '7', 'TORCHELASTIC_USE_AGENT_STORE': 'True'}
    set_all(monkeypatch, RANK='0', WORLD_SIZE='2', **where)
    init_dist('pytorch', backend='gloo')
    assert joined[0] == (0, 2, 'here', 7, 300.0, True)


def test_a_file_to_meet_at_needs_the_numbers(joined, monkeypatch):
    set_all(monkeypatch, RANK='1', WORLD_SIZE='2')
    init_dist('pytorch', backend='gloo', init_method='file:///somewhere')
    init_dist('pytorch', backend='gloo', init_method='file:///somewhere', rank=0, world_size=3)
    numbers = [(each['rank'], each['world_size']) for each in joined]
    assert numbers == [(1, 2), (0, 3)]


@pytest.mark.parametrize('job, meets_at', [({'SLURM_JOB_ID': '123456'}, '23456'), ({}, '29500')])
def test_slurm_jobs_meet_at_a_port_that_all_ranks_know(joined, monkeypatch, job, meets_at):
    env = {'SLURM_PROCID': '5', 'SLURM_NTASKS': '8', 'MASTER_ADDR': 'here', **job}
    set_all(monkeypatch, **env)
    init_dist('slurm', backend='gloo')
    assert [os.environ[name] for name in ('RANK', 'WORLD_SIZE', 'MASTER_PORT')] == ['5', '8', meets_at]
    assert joined[0] == (5, 8, 'here', int(meets_at), 300.0, False)
    assert joined[2] == {'backend': 'gloo', 'rank': 5, 'world_size': 8}


def test_mpi_has_a_default_port(joined, monkeypatch):
    for name, value in {'RANK': '1', 'LOCAL_RANK': '0', 'SIZE': '2'}.items():
        monkeypatch.setenv(f'OMPI_COMM_WORLD_{name}', value)
    with pytest.raises(KeyError, match='The environment variable MASTER_ADDR is not set'):
        init_dist('mpi')
    monkeypatch.setenv('MASTER_ADDR', 'here')
    init_dist('mpi', backend='gloo')
    assert [os.environ[name] for name in ('RANK', 'LOCAL_RANK', 'MASTER_PORT')] == ['1', '0', '29500']
    assert joined[0] == (1, 2, 'here', 29500, 300.0, False)


def joined_by_mpi(rank, port):
    names = {'RANK': rank, 'LOCAL_RANK': rank, 'SIZE': 2}
    os.environ.update({f'OMPI_COMM_WORLD_{name}': str(value) for name, value in names.items()})
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=port)
    init_dist('mpi', backend='gloo')
    print(get_dist_info(), reduce_sums([rank + 1.0]))
    shutdown()


@pytest.mark.distributed
def test_two_processes_of_mpi_join(tmp_path):
    port, forks = free_port(), []
    for rank in range(2):
        (tmp_path / str(rank)).mkdir()
        forks.append(Fork(joined_by_mpi, rank, port, folder=tmp_path / str(rank)))
    assert [fork.code() for fork in forks] == [0, 0], forks[0].said()
    assert [said_by_us(fork.said('stdout')) for fork in forks] == [[f'({rank}, 2) [3.0]'] for rank in range(2)]


GOOD = {'RANK': '1', 'WORLD_SIZE': '2', 'MASTER_ADDR': 'here', 'MASTER_PORT': '29500', 'LOCAL_RANK': '0'}


@pytest.mark.parametrize(
    'change, told',
    [
        (
            {'MASTER_ADDR': None, 'WORLD_SIZE': None},
            r'variables WORLD_SIZE, MASTER_ADDR are not set, .*tools/dist_train.sh CONFIG 2.*set: RANK=1, MASTER_PORT',
        ),
        ({'MASTER_PORT': ''}, 'variable MASTER_PORT is not set'),
        ({'MASTER_PORT': '70000'}, "MASTER_PORT must be a whole number from 1 to 65535, but it is '70000'"),
        ({'WORLD_SIZE': '0'}, "WORLD_SIZE must be a whole number of at least 1, but it is '0'"),
        ({'WORLD_SIZE': 'two'}, "WORLD_SIZE must be a whole number of at least 1, but it is 'two'"),
        ({'RANK': '2'}, "RANK must be a whole number from 0 to 1, since WORLD_SIZE=2, but it is '2'"),
        ({'RANK': '-1'}, "RANK must be .* but it is '-1'"),
        ({'LOCAL_RANK': 'x'}, "LOCAL_RANK must be a whole number of at least 0, but it is 'x'"),
        ({'LOCAL_WORLD_SIZE': '2', 'LOCAL_RANK': '2'}, "LOCAL_RANK must be .* from 0 to 1, .*but it is '2'"),
    ],
)
def test_a_wrong_environment(joined, monkeypatch, change, told):
    for name, value in {**GOOD, **change}.items():
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    with pytest.raises((KeyError, ValueError), match=told):
        init_dist('pytorch')
    assert joined == []
    if 'RANK' not in ''.join(change):  # all processes have it, and the first of each machine says it
        monkeypatch.setattr(launch, 'TELL_WITHIN', 0.0)
        monkeypatch.setenv('LOCAL_RANK', '1')
        with pytest.raises(ToldByFirstRank):
            init_dist('pytorch')
        monkeypatch.delenv('LOCAL_RANK')  # started by hand: nobody knows which one is the first
        with pytest.raises((KeyError, ValueError), match=told):
            init_dist('pytorch')


@pytest.mark.parametrize(
    'backend, told',
    [
        ('glo', "there is no backend 'glo'; did you mean 'gloo'?.* torch has gloo.* here, and 'nccl' always means"),
        ('cpu:gloo,cuda:nclc', "there is no backend 'nclc'; did you mean 'nccl'"),
        ('zzzz', "there is no backend 'zzzz'; torch has gloo"),
        (3, "backend must be a name such as 'gloo' or 'nccl', but got 3"),
        *[
            (name, f"torch was built without the backend '{name}'; torch has gloo")
            for name in ('mpi', 'ucc')
            if not dist.is_backend_available(name)
        ],
    ],
)
def test_a_backend_that_torch_does_not_have(joined, monkeypatch, backend, told):
    set_all(monkeypatch, **GOOD)
    with pytest.raises((TypeError, ValueError), match=told):
        init_dist('pytorch', backend=backend)
    assert joined == []


@pytest.mark.parametrize('backend', ['gloo', 'GLOO', 'cpu:gloo', 'nccl'])
def test_backends_that_torch_has_or_has_a_stand_in_for(backend):
    check_backend(backend)


@pytest.mark.parametrize('timeout', ['abc', True, 0, -1.5])
def test_a_timeout_that_is_none(joined, monkeypatch, timeout):
    set_all(monkeypatch, **GOOD)
    with pytest.raises((TypeError, ValueError), match=f'timeout must be .* but got {timeout!r}'):
        init_dist('pytorch', timeout=timeout)
    assert joined == []


def test_seconds_to_join_that_are_none(joined):
    with pytest.raises(ValueError, match='join_within must be more than 0 seconds, but got 0'):
        init_dist('pytorch', join_within=0)


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


# --- processes that meet, here threads --------------------------------------------------------------------------------


@pytest.fixture
def port():
    return int(free_port())


def met(port, *calls, within=60):
    """What becomes of ``meet`` for each rank and WORLD_SIZE in ``calls``: None, or its error."""

    stores = []  # rank 0's is to be there until all have met

    def one(rank, world_size):
        if rank:
            time.sleep(0.3)
        try:
            stores.append(meet(rank, world_size, '127.0.0.1', port, within))
        except Exception as error:
            return error.with_traceback(None)

    with ThreadPoolExecutor(len(calls)) as threads:
        return [each.result() for each in [threads.submit(one, *call) for call in calls]]


def test_all_come(port):
    assert met(port, (0, 3), (1, 3), (2, 3)) == [None] * 3


def test_a_rank_that_does_not_come(port, monkeypatch, caplog):
    monkeypatch.setattr(launch, '_LOG_EVERY', 0.5)
    monkeypatch.setattr(get_logger('runnerkit'), 'propagate', True)
    with caplog.at_level(logging.INFO, 'runnerkit'):
        first, second = met(port, (0, 4), (1, 4), within=4)
    assert isinstance(first, TimeoutError)
    assert f'2 of WORLD_SIZE=4 processes have come to 127.0.0.1:{port} within 4 s; missing: ranks 2, 3.' in str(first)
    assert isinstance(second, ToldByFirstRank)
    assert f'waiting at 127.0.0.1:{port} for ranks 2, 3 of 4' in caplog.text


def test_no_rank_0(port):
    (error,) = met(port, (1, 2), within=1)
    assert isinstance(error, TimeoutError)
    assert f'rank 1 has found no process at MASTER_ADDR=127.0.0.1, MASTER_PORT={port} within 1 s' in str(error)


@pytest.mark.parametrize('listens', [False, True])
def test_a_process_that_waits_can_be_interrupted(port, listens):
    """Nobody is there yet, or rank 0 is still waiting for others."""
    store = TCPStore('127.0.0.1', port, is_master=True, wait_for_workers=False) if listens else None
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    began = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(KeyboardInterrupt):
            meet(1, 2, '127.0.0.1', port, within=600)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began < 300  # torch's own wait would hear it after 600 seconds
    del store


def test_a_port_that_is_taken():
    with socket.socket() as other:
        other.bind(('', 0))
        other.listen()
        port = other.getsockname()[1]
        (error,) = met(port, (0, 2), within=5)
    assert isinstance(error, OSError)
    assert f'the port {port} of this machine is in use' in str(error)
    assert 'PORT=29501 for tools/dist_train.sh' in str(error)


@pytest.mark.parametrize(
    'first, others, missing',
    [
        ((0, 2), [(1, 3)], 'missing: rank 1.'),  # another WORLD_SIZE
        ((0, 3), [(1, 3), (1, 3)], 'missing: rank 2.'),  # two with the same RANK
    ],
)
def test_processes_that_do_not_fit(port, first, others, missing):
    error, *more = met(port, first, *others, within=2)
    assert isinstance(error, TimeoutError)
    assert missing in str(error)
    assert 'each with its own RANK and the same WORLD_SIZE?' in str(error)
    assert all(isinstance(each, (TimeoutError, ToldByFirstRank)) for each in more)


def test_a_rank_that_rank_0_does_not_wait_for(port):
    store = meet(0, 1, '127.0.0.1', port, 5)
    (second,) = met(port, (1, 2), within=2)
    assert isinstance(second, TimeoutError)
    assert 'rank 1 has got no answer from rank 0' in str(second)
    assert 'WORLD_SIZE=2?' in str(second)
    del store


def test_torchruns_store_still_has_what_the_processes_that_have_died_wrote(port):
    kept = TCPStore('127.0.0.1', port, is_master=True, wait_for_workers=False)

    def start(*ranks):
        barrier = Barrier(len(ranks))

        def one(rank):
            store = meet(rank, len(ranks), '127.0.0.1', port, 20, is_kept=True)
            found = store.check(['address of 0'])
            barrier.wait()
            store.set(f'address of {rank}', '')
            store.wait([f'address of {each}' for each in ranks])
            return found

        with ThreadPoolExecutor(len(ranks)) as threads:
            return list(threads.map(one, ranks))

    for ranks in [(0, 1, 2), (0, 1, 2), (0, 1), (0, 1, 2)]:
        kept.set(f'runnerkit/hello/{len(ranks)}/1', 'a process that has died')
        assert not any(start(*ranks))
