"""Where the processes of a run meet: all of them come, or rank 0 says which ones have not."""

from __future__ import annotations

import socket
import time
from datetime import timedelta
from typing import Any
from uuid import uuid4

from torch import distributed as dist

from runnerkit.distributed.groups import ranks_in_words
from runnerkit.utils.exceptions import ToldByFirstRank
from runnerkit.utils.logging import get_logger

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
