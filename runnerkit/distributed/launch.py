"""Joins and leaves the process group of a distributed run."""

from __future__ import annotations

import os
import subprocess
import time
from datetime import timedelta
from typing import Any, NoReturn

import torch
from torch import distributed as dist

from runnerkit.distributed.devices import accelerator, check_backend, device_count, use_device
from runnerkit.distributed.groups import is_distributed
from runnerkit.distributed.meeting import meet
from runnerkit.utils.exceptions import ToldByFirstRank
from runnerkit.utils.logging import get_logger

#: torch's default port.
DEFAULT_PORT = 29500

#: Seconds that rank 0 waits for the other processes to come.
JOIN_WITHIN = 300.0

#: The variables by which torch's processes find each other.
_MEETING = ('RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT')

#: Seconds that the other processes of a machine give the first one to say what is wrong with all of them. Launchers end
#: all processes as soon as one has gone; so the first one, which may be the slowest, is not ended before it has spoken.
TELL_WITHIN = 10.0

#: What ``dist_params`` has for `Watch`, and not for the process group.
WATCH = ('end_within', 'hang_after')

#: How a program is started with each launcher.
_STARTS = {
    'pytorch': 'torchrun --nproc_per_node 2 …, or tools/dist_train.sh CONFIG 2',
    'slurm': 'srun …, or tools/slurm_train.sh',
    'mpi': 'mpirun -x MASTER_ADDR …',
}

#: The backends of accelerators; nccl is also that of ROCm.
_BACKENDS = {'cuda': 'nccl', 'xpu': 'xccl'}


def init_dist(launcher: str, backend: str = 'nccl', join_within: float = JOIN_WITHIN, **kwargs: Any) -> None:
    """Join the process group of ``launcher``, and make this process's GPU the current one.

    One process of each machine reports what is wrong with the environment; the others only refer to it.

    Args:
        launcher: ``'pytorch'`` (torchrun), ``'slurm'`` or ``'mpi'``.
        backend: ``'nccl'``, MMCV's default, means that of this machine's accelerator: nccl for CUDA and ROCm, xccl for
            XPU, gloo without an accelerator.
        join_within: seconds that rank 0 waits for the other processes.
        **kwargs: for `torch.distributed.init_process_group`; ``timeout`` may be a number of seconds. For slurm also
            ``port``. What a run's ``dist_params`` has for `runnerkit.distributed.Watch` is left out.

    Raises:
        TypeError: ``timeout`` is no number of seconds, or ``backend`` no name.
        ValueError: an unknown launcher or backend; seconds that are not more than 0; variables that contradict each
            other, such as a RANK beyond WORLD_SIZE.
        KeyError: environment variables are missing that the launcher sets.
        OSError: the port is taken.
        TimeoutError: some processes have not come, or rank 0 cannot be reached.
        ToldByFirstRank: another process says what is wrong.
    """
    if launcher not in _LAUNCHERS:
        raise ValueError(f'Invalid launcher type: {launcher!r}; choose one of {", ".join(map(repr, _LAUNCHERS))}')
    if join_within <= 0:
        raise ValueError(f'join_within must be more than 0 seconds, but got {join_within}')
    check_backend(backend)
    _LAUNCHERS[launcher](kwargs)
    for name in WATCH:
        kwargs.pop(name, None)
    meets_by_itself = 'init_method' not in kwargs and 'store' not in kwargs
    if meets_by_itself:
        check_variables(launcher)
    local_rank = int(os.environ.get('LOCAL_RANK', os.environ.get('RANK', 0)))
    if (timeout := kwargs.pop('timeout', None)) is not None:
        kwargs['timeout'] = _time_out(timeout)
    kind = accelerator() or 'cpu'
    if kind != 'cpu':
        use_device(kind, local_rank % max(1, device_count(kind)))
    if backend == 'nccl' and kind != 'cuda':
        backend = _BACKENDS.get(kind, 'gloo')
        get_logger('runnerkit').info('no CUDA device: the processes communicate through %s instead of nccl', backend)
    if meets_by_itself:
        rank, world_size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
        address, port = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])
        is_kept = os.environ.get('TORCHELASTIC_USE_AGENT_STORE') == 'True'
        store = meet(rank, world_size, address, port, join_within, is_kept)
        store.set_timeout(kwargs.get('timeout', dist.default_pg_timeout))
        kwargs.update(store=store, rank=rank, world_size=world_size)
    elif str(kwargs.get('init_method', 'env://')).partition('?')[0] != 'env://' and 'WORLD_SIZE' in os.environ:
        kwargs = {'rank': int(os.environ['RANK']), 'world_size': int(os.environ['WORLD_SIZE']), **kwargs}
    dist.init_process_group(backend=backend, **kwargs)


def _time_out(given: Any) -> timedelta:
    """The limit of a collective, given in seconds or as it is."""
    if isinstance(given, bool) or not isinstance(given, (int, float, timedelta)):
        raise TypeError(f'timeout must be a number of seconds, the limit of one collective, but got {given!r}')
    found = given if isinstance(given, timedelta) else timedelta(seconds=given)
    if found <= timedelta(0):
        raise ValueError(f'timeout must be more than 0 seconds, but got {given!r}')
    return found


def shutdown() -> None:
    """Leave the process group, if this process is in one."""
    if is_distributed():
        dist.destroy_process_group()


def check_variables(launcher: str) -> None:
    """Check the variables by which the processes find each other."""
    missing = [name for name in _MEETING if not os.environ.get(name)]
    if missing:
        there = [f'{name}={os.environ[name]}' for name in _MEETING if name not in missing]
        refuse_once(KeyError(_not_set(missing, launcher) + (f' (what is set: {", ".join(there)})' if there else '')))
    world_size = _number_in_environment('WORLD_SIZE', 1)
    _number_in_environment('MASTER_PORT', 1, 65535)
    _number_in_environment('RANK', 0, world_size - 1, 'WORLD_SIZE')
    if os.environ.get('LOCAL_RANK'):
        _number_in_environment(
            'LOCAL_RANK',
            0,
            _number_in_environment('LOCAL_WORLD_SIZE', 1) - 1 if os.environ.get('LOCAL_WORLD_SIZE') else None,
        )


def _number_in_environment(name: str, least: int, most: int | None = None, limited_by: str = '') -> int:
    text = os.environ[name]
    value = int(text) if text.isdecimal() else -1
    if least <= value and (most is None or value <= most):
        return value
    why = f', since {limited_by}={os.environ[limited_by]}' if limited_by else ''
    error = ValueError(
        f'the environment variable {name} must be a whole number '
        f'{f"of at least {least}" if most is None else f"from {least} to {most}"}{why}, but it is {text!r}'
    )
    if name in ('RANK', 'LOCAL_RANK'):  # each process has its own, so each one that is wrong says so
        raise error
    refuse_once(error)
    raise error


def refuse_once(error: Exception) -> NoReturn:
    """Raise ``error``, which all processes of this machine have before they meet, in the first of them; where that is
    not known, in each.
    """
    if (os.environ.get('LOCAL_RANK') or '0') != '0':
        time.sleep(TELL_WITHIN)
        raise ToldByFirstRank('the first process of this machine says what is wrong')
    raise error


def _torchrun(kwargs: dict[str, Any]) -> None:
    if 'RANK' not in os.environ and 'rank' not in kwargs:
        raise KeyError(_not_set(['RANK'], 'pytorch'))
    for name in ('rank', 'world_size'):  # a config may set them in dist_params
        if name in kwargs:
            os.environ[name.upper()] = str(kwargs[name])


def _mpi(kwargs: dict[str, Any]) -> None:
    os.environ.setdefault('MASTER_PORT', str(DEFAULT_PORT))
    os.environ['WORLD_SIZE'] = _variable('OMPI_COMM_WORLD_SIZE', 'mpi')
    os.environ['RANK'] = _variable('OMPI_COMM_WORLD_RANK', 'mpi')
    os.environ['LOCAL_RANK'] = _variable('OMPI_COMM_WORLD_LOCAL_RANK', 'mpi')


def _slurm(kwargs: dict[str, Any]) -> None:
    rank = _variable('SLURM_PROCID', 'slurm')
    port = kwargs.pop('port', None)
    if port is not None:
        os.environ['MASTER_PORT'] = str(port)
    os.environ.setdefault('MASTER_PORT', str(_port_of_job()))
    if 'MASTER_ADDR' not in os.environ:
        os.environ['MASTER_ADDR'] = _first_host(_variable('SLURM_NODELIST', 'slurm'))
    os.environ['WORLD_SIZE'] = _variable('SLURM_NTASKS', 'slurm')
    os.environ['RANK'] = rank
    # By default, slurm assigns tasks to machines in blocks, so rank modulo GPUs is right if slurm does not say.
    os.environ['LOCAL_RANK'] = os.environ.get('SLURM_LOCALID') or str(int(rank) % max(1, torch.cuda.device_count()))


def _port_of_job() -> int:
    """Return a port that is equal for all processes of a slurm job, and differs for most pairs of jobs."""
    job = os.environ.get('SLURM_JOB_ID', '')
    return 20000 + int(job) % 20000 if job.isdecimal() else DEFAULT_PORT


def _first_host(nodes: str) -> str:
    """Return the first machine of slurm's list of machines, such as ``node[3-5,8]``."""
    host = subprocess.getoutput(f'scontrol show hostname {nodes} | head -n1')
    if len(host.split()) != 1:
        raise RuntimeError(
            f'slurm does not say which machine is the first of {nodes}, its scontrol answers {host!r}: set MASTER_ADDR'
        )
    return host


def _variable(name: str, launcher: str) -> str:
    if not os.environ.get(name):
        raise KeyError(_not_set([name], launcher))
    return os.environ[name]


def _not_set(names: list[str], launcher: str) -> str:
    several = len(names) > 1
    return (
        f'The environment variable{"s" * several} {", ".join(names)} {"are" if several else "is"} not set, which '
        f'launcher={launcher!r} needs: start the program with {_STARTS[launcher]}, or as one process with '
        '--launcher none'
    )


_LAUNCHERS = {'pytorch': _torchrun, 'slurm': _slurm, 'mpi': _mpi}
