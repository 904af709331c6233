"""Joins and leaves the process group of a distributed run."""

from __future__ import annotations

import os
import subprocess
from datetime import timedelta
from typing import Any

import torch
from torch import distributed as dist

from runnerkit.distributed.info import is_distributed
from runnerkit.utils.logging import get_logger

#: torch's default port.
DEFAULT_PORT = 29500


def init_dist(launcher: str, backend: str = 'nccl', **kwargs: Any) -> None:
    """Join the process group of ``launcher``, and make this process's GPU the current one.

    Args:
        launcher: ``'pytorch'`` (torchrun), ``'slurm'`` or ``'mpi'``.
        backend: without a GPU, ``'nccl'`` is replaced by ``'gloo'``.
        **kwargs: for `torch.distributed.init_process_group`; ``timeout`` may be a number of seconds. For slurm also
            ``port``.

    Raises:
        ValueError: an unknown launcher.
        KeyError: an environment variable is missing that the launcher sets.
    """
    if launcher not in _LAUNCHERS:
        raise ValueError(f'Invalid launcher type: {launcher!r}; choose one of {", ".join(map(repr, _LAUNCHERS))}')
    local_rank = _LAUNCHERS[launcher](kwargs)
    if isinstance(kwargs.get('timeout'), (int, float)):
        kwargs['timeout'] = timedelta(seconds=kwargs['timeout'])
    gpus = torch.cuda.device_count()
    if gpus:
        torch.cuda.set_device(local_rank % gpus)
    elif backend == 'nccl':
        backend = 'gloo'
        get_logger('runnerkit').info('no GPU: the processes communicate through gloo instead of nccl')
    dist.init_process_group(backend=backend, **kwargs)


def shutdown() -> None:
    """Leave the process group, if this process is in one."""
    if is_distributed():
        dist.destroy_process_group()


def _torchrun(kwargs: dict[str, Any]) -> int:
    rank = int(_variable('RANK', 'pytorch', 'torchrun --nproc_per_node 2 …'))
    return int(os.environ.get('LOCAL_RANK', rank))


def _mpi(kwargs: dict[str, Any]) -> int:
    start = 'mpirun -x MASTER_ADDR …'
    _variable('MASTER_ADDR', 'mpi', start)
    os.environ.setdefault('MASTER_PORT', str(DEFAULT_PORT))
    os.environ['WORLD_SIZE'] = _variable('OMPI_COMM_WORLD_SIZE', 'mpi', start)
    os.environ['RANK'] = _variable('OMPI_COMM_WORLD_RANK', 'mpi', start)
    os.environ['LOCAL_RANK'] = _variable('OMPI_COMM_WORLD_LOCAL_RANK', 'mpi', start)
    return int(os.environ['LOCAL_RANK'])


def _slurm(kwargs: dict[str, Any]) -> int:
    rank = _variable('SLURM_PROCID', 'slurm', 'srun …')
    port = kwargs.pop('port', None)
    if port is not None:
        os.environ['MASTER_PORT'] = str(port)
    os.environ.setdefault('MASTER_PORT', str(_port_of_job()))
    if 'MASTER_ADDR' not in os.environ:
        os.environ['MASTER_ADDR'] = _first_host(_variable('SLURM_NODELIST', 'slurm', 'srun …'))
    os.environ['WORLD_SIZE'] = _variable('SLURM_NTASKS', 'slurm', 'srun …')
    os.environ['RANK'] = rank
    # By default, slurm assigns tasks to machines in blocks, so rank modulo GPUs is right if slurm does not say.
    os.environ['LOCAL_RANK'] = os.environ.get('SLURM_LOCALID') or str(int(rank) % max(1, torch.cuda.device_count()))
    return int(os.environ['LOCAL_RANK'])


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


def _variable(name: str, launcher: str, start: str) -> str:
    if name not in os.environ:
        raise KeyError(
            f'The environment variable {name} is not set, which launcher={launcher!r} needs: start the program '
            f'with {start}, or as one process with --launcher none'
        )
    return os.environ[name]


_LAUNCHERS = {'pytorch': _torchrun, 'slurm': _slurm, 'mpi': _mpi}
