"""Joining the other processes of a distributed run, and leaving them."""

from __future__ import annotations

import os
import subprocess
from datetime import timedelta
from typing import Any

import torch
from torch import distributed as dist

from runnerkit.distributed.info import is_distributed
from runnerkit.utils.logging import get_logger

#: torch's own choice where nothing says which port to meet at.
DEFAULT_PORT = 29500


def init_dist(launcher: str, backend: str = 'nccl', **kwargs: Any) -> None:
    """Join the processes that ``launcher`` has started, and make this one's GPU the current one.

    Args:
        launcher: ``'pytorch'`` (torchrun), ``'slurm'`` or ``'mpi'``.
        backend: where there is no GPU, ``'gloo'`` takes the place of ``'nccl'``.
        **kwargs: for `torch.distributed.init_process_group`; ``timeout`` may be a number of seconds. For slurm also
            ``port``.

    Raises:
        ValueError: another launcher.
        KeyError: the environment is not that of a process which the launcher started.
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
        get_logger('runnerkit').info('no GPU: the processes talk through gloo instead of nccl')
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
    # Tasks are dealt out in blocks by default, so rank modulo GPUs is right where slurm does not say.
    os.environ['LOCAL_RANK'] = os.environ.get('SLURM_LOCALID') or str(int(rank) % max(1, torch.cuda.device_count()))
    return int(os.environ['LOCAL_RANK'])


def _port_of_job() -> int:
    """A port that all processes of a slurm job agree on without talking, and two jobs on one machine hardly share."""
    job = os.environ.get('SLURM_JOB_ID', '')
    return 20000 + int(job) % 20000 if job.isdecimal() else DEFAULT_PORT


def _first_host(nodes: str) -> str:
    """The first machine in slurm's short form of a list of them, such as ``node[3-5,8]``."""
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
