"""Where the processes of a run meet: all of them come, or rank 0 says which ones have not."""

from __future__ import annotations

import socket
import time
from datetime import timedelta
from typing import Any
from uuid import uuid4

from torch import distributed as dist

from runnerkit.distributed.info import ranks_in_words
from runnerkit.utils.exceptions import ToldByFirstRank
from runnerkit.utils.logging import get_logger

_POLL = 0.05  # seconds between two looks at who has come
_MOST = 0.1  # the longest time between two looks of one that has come, in seconds
_LEAST = 1.0  # the shortest time-out of a connection, in seconds
_TELL = 10.0  # seconds between two lines about who is missing

#: Keys in the store; the first three are followed by a rank, by what that rank has called itself, and by a rank.
_HELLO, _WELCOME, _COUNT = 'runnerkit/hello/', 'runnerkit/welcome/', 'runnerkit/count/'
_REFUSED, _SIZE, _ALL = 'runnerkit/refused', 'runnerkit/world_size', 'runnerkit/all'


def meet(rank: int, world_size: int, address: str, port: int, within: float, is_kept: bool = False) -> Any:
    """The store for the process group, once all processes have come to it.

    Every meeting has its own keys there: torchrun keeps one store for all its restarts, in which a process would
    find the addresses of those that have died.

    Args:
        rank: of this process; rank 0 keeps the store, unless ``is_kept``.
        world_size: how many processes there should be.
        address: the machine of rank 0.
        port: the port there.
        within: seconds to wait.
        is_kept: whether torchrun keeps the store, and has given the processes their numbers.

    Raises:
        OSError: rank 0 cannot listen at the port.
        TimeoutError: the store cannot be reached; or, on rank 0, some processes have not come.
        ValueError: on rank 0: the processes differ in WORLD_SIZE, or two have the same RANK.
        ToldByFirstRank: on the others: rank 0 says what is wrong.
    """
    store = _connected(rank, world_size, address, port, within, is_kept)
    if rank == 0:
        token = _receive(store, world_size, f'{address}:{port}', within, is_kept)
    else:
        token = _come(store, rank, world_size, within, is_kept)
    return dist.PrefixStore(token, store)


def _connected(rank: int, world_size: int, address: str, port: int, within: float, is_kept: bool) -> Any:
    keeps = rank == 0 and not is_kept
    deadline = time.monotonic() + within
    try:
        if not keeps:
            _await_listener(address, port, within)
        return dist.TCPStore(
            address,
            port,
            world_size,
            is_master=keeps,
            timeout=timedelta(seconds=max(_LEAST, deadline - time.monotonic())),
            wait_for_workers=False,
            multi_tenant=True,
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
            f'rank {rank} has found no {"torchrun" if is_kept else "rank 0"} at MASTER_ADDR={address}, '
            f'MASTER_PORT={port} within {within:g} s ({first_line}): does it run, with the same MASTER_ADDR and '
            'MASTER_PORT, and does the network let this machine reach it?'
        ) from error


def _await_listener(address: str, port: int, within: float) -> None:
    """Wait until a process listens there; unlike torch's wait, this can be interrupted.

    Raises:
        OSError: no process does.
    """
    deadline = time.monotonic() + within
    while True:
        try:
            socket.create_connection((address, port), timeout=max(_LEAST, deadline - time.monotonic())).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_POLL)


def _wait(store: Any, key: str, within: float) -> None:
    """Wait for a key of the store, which a process can be interrupted in; in torch's wait it cannot.

    Raises:
        TimeoutError: it has not come.
        RuntimeError: the store has gone.
    """
    pause, deadline = _POLL / 10, time.monotonic() + within
    while not store.check([key]):
        if time.monotonic() > deadline:
            raise TimeoutError(f'{key} has not come within {within:g} s')
        time.sleep(pause)
        pause = min(2 * pause, _MOST)


def _receive(store: Any, world_size: int, place: str, within: float, is_kept: bool) -> str:
    if not is_kept:
        store.set(_SIZE, str(world_size))
    began = told = time.monotonic()
    token = uuid4().hex
    missing, welcomed = list(range(1, world_size)), set()
    while missing:
        for rank in missing:
            # What a process of an earlier start has called itself may still be there, and is answered in vain.
            name = store.get(_HELLO + str(rank)).decode() if store.check([_HELLO + str(rank)]) else None
            if name is not None and name not in welcomed:
                store.set(_WELCOME + name, token)
                welcomed.add(name)
        missing = [rank for rank in missing if not store.check([f'{token}/{rank}'])]
        if not is_kept and store.check([_REFUSED]):
            raise ValueError(store.get(_REFUSED).decode())
        now = time.monotonic()
        if missing and now - began > within:
            raise TimeoutError(
                f'{world_size - len(missing)} of WORLD_SIZE={world_size} processes have come to {place} within '
                f'{within:g} s; missing: {ranks_in_words(missing)}. Are they running, with this MASTER_ADDR and '
                'MASTER_PORT, and is WORLD_SIZE right? Slower starts need dist_params=dict(join_within=…)'
            )
        if missing and now - told > _TELL:
            told = now
            get_logger('runnerkit').info('waiting at %s for %s of %d', place, ranks_in_words(missing), world_size)
        if missing:
            time.sleep(_POLL)
    store.set(f'{token}/all', '')
    if not is_kept:
        store.set(_ALL, '')
    return token


def _come(store: Any, rank: int, world_size: int, within: float, is_kept: bool) -> str:
    name = uuid4().hex
    try:
        why = '' if is_kept else _why_refused(store, rank, world_size, within)
        if why:
            store.set(_REFUSED, why)
            _wait(store, _ALL, within)
            raise ValueError(why)  # rank 0 has gone on, since it does not miss this process
        store.set(_HELLO + str(rank), name)
        _wait(store, _WELCOME + name, within)
        token: str = store.get(_WELCOME + name).decode()
        store.set(f'{token}/{rank}', '')
        _wait(store, f'{token}/all', 2 * within)  # rank 0 may have begun to wait later
        return token
    except (RuntimeError, TimeoutError) as error:
        raise ToldByFirstRank('the processes have not met, as rank 0 says') from error


def _why_refused(store: Any, rank: int, world_size: int, within: float) -> str:
    _wait(store, _SIZE, within)
    size = int(store.get(_SIZE))
    if size != world_size:
        return f'the processes do not agree: WORLD_SIZE is {size} for rank 0, and {world_size} for rank {rank}'
    if store.add(f'{_COUNT}{rank}', 1) > 1:
        return f'two processes have RANK={rank}: each needs another number'
    return ''
