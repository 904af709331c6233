"""Joins and leaves the process group of a distributed run: all of its processes come, or rank 0 says which have not."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from datetime import timedelta
from typing import Any, NoReturn
from uuid import uuid4

import torch
from torch import distributed as dist

from runnerkit.distributed.devices import accelerator, check_backend, device_count, use_device
from runnerkit.distributed.groups import is_distributed, ranks_in_words
from runnerkit.utils.exceptions import ToldByFirstRank
from runnerkit.utils.logging import get_logger
from runnerkit.utils.torch_versions import destroy_group

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
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float, timedelta)):
            raise TypeError(f'timeout must be a number of seconds, the limit of one collective, but got {timeout!r}')
        kwargs['timeout'] = timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)
        if kwargs['timeout'] <= timedelta(0):
            raise ValueError(f'timeout must be more than 0 seconds, but got {timeout!r}')
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


def shutdown() -> None:
    """Leave the process group, if this process is in one."""
    if is_distributed():
        destroy_group()


def check_variables(launcher: str) -> None:
    """Check the variables by which the processes find each other."""
    missing = [name for name in _MEETING if not os.environ.get(name)]
    if missing:
        there = [f'{name}={os.environ[name]}' for name in _MEETING if name not in missing]
        refuse_once(KeyError(_not_set(missing, launcher) + (f' (what is set: {", ".join(there)})' if there else '')))
    world_size = _checked_number('WORLD_SIZE', 1)
    _checked_number('MASTER_PORT', 1, 65535)
    _checked_number('RANK', 0, world_size - 1, 'WORLD_SIZE')
    if os.environ.get('LOCAL_RANK'):
        most = _checked_number('LOCAL_WORLD_SIZE', 1) - 1 if os.environ.get('LOCAL_WORLD_SIZE') else None
        _checked_number('LOCAL_RANK', 0, most)


def _checked_number(name: str, least: int, most: int | None = None, limited_by: str = '') -> int:
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
    # Equal for all processes of a job, and different for most pairs of jobs.
    job = os.environ.get('SLURM_JOB_ID', '')
    os.environ.setdefault('MASTER_PORT', str(20000 + int(job) % 20000 if job.isdecimal() else DEFAULT_PORT))
    if 'MASTER_ADDR' not in os.environ:
        nodes = _variable('SLURM_NODELIST', 'slurm')  # such as node[3-5,8]
        host = subprocess.getoutput(f'scontrol show hostname {nodes} | head -n1')
        if len(host.split()) != 1:
            raise RuntimeError(
                f'slurm does not say which machine is the first of {nodes}, its scontrol answers {host!r}: set '
                'MASTER_ADDR'
            )
        os.environ['MASTER_ADDR'] = host
    os.environ['WORLD_SIZE'] = _variable('SLURM_NTASKS', 'slurm')
    os.environ['RANK'] = rank
    # By default, slurm assigns tasks to machines in blocks, so rank modulo GPUs is right if slurm does not say.
    os.environ['LOCAL_RANK'] = os.environ.get('SLURM_LOCALID') or str(int(rank) % max(1, torch.cuda.device_count()))


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


# --- where the processes meet -----------------------------------------------------------------------------------------


_POLL = 0.05  # seconds between two looks of rank 0
_MOST = 0.1  # the longest time between two looks of the others, in seconds
_LEAST = 1.0  # the shortest time-out of a connection, in seconds
_LOG_EVERY = 10.0  # seconds between two lines about missing processes


def meet(rank: int, world_size: int, address: str, port: int, within: float, is_kept: bool = False) -> Any:
    """The store for the process group, once all processes have come to it.

    Every meeting has its own keys there: torchrun keeps one store for all its restarts, in which a process would
    find the addresses of those that have died.
    """
    deadline = time.monotonic() + within
    store = _connect(rank == 0 and not is_kept, rank, world_size, address, port, within)
    hello = f'runnerkit/hello/{world_size}/'
    if rank == 0:
        return dist.PrefixStore(_receive(store, hello, world_size, f'{address}:{port}', within), store)
    name = uuid4().hex
    try:
        store.set(f'{hello}{rank}', name)
        wait_for_key(store, name, deadline)
        token = store.get(name).decode()
        store.set(f'{token}/{rank}', '')
        wait_for_key(store, f'{token}/all', deadline + within)  # rank 0 may have begun to wait later
    except TimeoutError:
        raise TimeoutError(
            f'rank {rank} has got no answer from rank 0 at {address}:{port} within {within:g} s: does it run, with the '
            f'same WORLD_SIZE={world_size}?'
        ) from None
    except RuntimeError as error:
        raise ToldByFirstRank('the processes have not met, as rank 0 says') from error
    return dist.PrefixStore(token, store)


def wait_for_key(store: Any, key: str, deadline: float) -> None:
    """Wait for a key of the store until ``deadline``, on the monotonic clock; a signal's handler runs meanwhile, in
    torch's own wait it would not.
    """
    pause = _POLL / 10
    while not store.check([key]):
        if time.monotonic() > deadline:
            raise TimeoutError(f'no answer for {key}')
        time.sleep(pause)
        pause = min(2 * pause, _MOST)


def _connect(keeps: bool, rank: int, world_size: int, address: str, port: int, within: float) -> Any:
    deadline = time.monotonic() + within
    try:
        while not keeps:  # torch's wait for a process that listens could not be interrupted
            try:
                socket.create_connection((address, port), timeout=max(_LEAST, deadline - time.monotonic())).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_POLL)
        timeout = timedelta(seconds=max(_LEAST, deadline - time.monotonic()))
        return dist.TCPStore(
            address, port, world_size, keeps, timeout=timeout, wait_for_workers=False, multi_tenant=True
        )
    except (RuntimeError, ValueError, OSError) as error:  # torch's errors of the network are RuntimeErrors
        text = str(error)
        first_line = text.strip().partition('\n')[0].rstrip('.')
        if keeps and ('EADDRINUSE' in text or 'address already in use' in text):
            raise OSError(
                f'the port {port} of this machine is in use, perhaps by another run, so rank 0 cannot listen '
                'there: choose another one (MASTER_PORT=29501, PORT=29501 for tools/dist_train.sh, '
                'dist_params=dict(port=29501) for slurm)'
            ) from error
        if keeps:
            raise OSError(
                f'rank 0 cannot listen at MASTER_ADDR={address}, MASTER_PORT={port}: {first_line}. MASTER_ADDR must '
                'be the machine on which rank 0 runs'
            ) from error
        raise TimeoutError(
            f'rank {rank} has found no process at MASTER_ADDR={address}, MASTER_PORT={port} within {within:g} s '
            f'({first_line}): does rank 0 or torchrun run, with the same MASTER_ADDR and MASTER_PORT, and does the '
            'network let this machine reach it?'
        ) from error


def _receive(store: Any, hello: str, world_size: int, place: str, within: float) -> str:
    """On rank 0: answer all others, and return the prefix of this meeting's keys."""
    began = logged = time.monotonic()
    token = uuid4().hex
    missing, answered = list(range(1, world_size)), set()
    while missing:
        for rank in missing:
            # What a process of an earlier start has called itself may still be there, and is answered in vain.
            name = store.get(f'{hello}{rank}').decode() if store.check([f'{hello}{rank}']) else None
            if name is not None and name not in answered:
                store.set(name, token)
                answered.add(name)
        missing = [rank for rank in missing if not store.check([f'{token}/{rank}'])]
        now = time.monotonic()
        if missing and now - began > within:
            raise TimeoutError(
                f'{world_size - len(missing)} of WORLD_SIZE={world_size} processes have come to {place} within '
                f'{within:g} s; missing: {ranks_in_words(missing)}. Are they running, with this MASTER_ADDR and '
                'MASTER_PORT, each with its own RANK and the same WORLD_SIZE? Slower starts need '
                'dist_params=dict(join_within=…)'
            )
        if missing and now - logged > _LOG_EVERY:
            logged = now
            get_logger('runnerkit').info('waiting at %s for %s of %d', place, ranks_in_words(missing), world_size)
        if missing:
            time.sleep(_POLL)
    store.set(f'{token}/all', '')
    return token
