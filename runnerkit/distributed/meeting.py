"""Where processes that no torchrun has counted meet: all come, or rank 0 says which ones have not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from torch import distributed as dist

from runnerkit.utils.exceptions import ToldByFirstRank
from runnerkit.utils.logging import get_logger

_POLL = 0.1  # seconds between two looks at who has come
_TELL = 10.0  # seconds between two lines about who is missing
_MOST = 16  # how many missing ranks are named

_ALL, _REFUSED, _SIZE, _RANK = 'runnerkit/all', 'runnerkit/refused', 'runnerkit/world_size', 'runnerkit/rank/'


def meet(rank: int, world_size: int, address: str, port: int, within: float) -> Any:
    """The store of the process group, once all processes have come to it.

    Args:
        rank: of this process; rank 0 keeps the store.
        world_size: how many processes there should be.
        address: the machine of rank 0.
        port: the port there.
        within: seconds to wait.

    Raises:
        OSError: rank 0 cannot listen at the port.
        TimeoutError: rank 0 cannot be reached; or, on rank 0, some processes have not come.
        ValueError: on rank 0: the processes differ in WORLD_SIZE, or two have the same RANK.
        ToldByFirstRank: on the others: rank 0 says what is wrong.
    """
    store = _connected(rank, world_size, address, port, within)
    if rank == 0:
        _receive(store, world_size, address, port, within)
    else:
        _come(store, rank, world_size, within)
    return store


def _connected(rank: int, world_size: int, address: str, port: int, within: float) -> Any:
    try:
        return dist.TCPStore(
            address,
            port,
            world_size,
            is_master=rank == 0,
            timeout=timedelta(seconds=within),
            wait_for_workers=False,
            multi_tenant=True,
        )
    except (RuntimeError, ValueError) as error:  # torch's errors of the network are RuntimeErrors
        text = str(error)
        if rank == 0 and ('EADDRINUSE' in text or 'address already in use' in text):
            raise OSError(
                f'the port {port} of this machine is taken, by another training perhaps, and rank 0 cannot listen '
                'there: choose another one (MASTER_PORT=29501, PORT=29501 for tools/dist_train.sh, '
                'dist_params=dict(port=29501) for slurm)'
            ) from error
        if rank == 0:
            raise OSError(
                f'rank 0 cannot listen at MASTER_ADDR={address}, MASTER_PORT={port}: {_first_line(text)}. MASTER_ADDR '
                'must be the machine on which rank 0 runs'
            ) from error
        raise TimeoutError(
            f'rank {rank} has found no rank 0 at MASTER_ADDR={address}, MASTER_PORT={port} within {within:g} s '
            f'({_first_line(text)}): is rank 0 running, with the same MASTER_ADDR and MASTER_PORT, and does the '
            'network let this machine reach it?'
        ) from error


def _receive(store: Any, world_size: int, address: str, port: int, within: float) -> None:
    store.set(_SIZE, str(world_size))
    began = told = time.monotonic()
    missing = list(range(1, world_size))
    while missing:
        missing = [rank for rank in missing if not store.check([_RANK + str(rank)])]
        if store.check([_REFUSED]):
            raise ValueError(store.get(_REFUSED).decode())
        now = time.monotonic()
        if missing and now - began > within:
            raise TimeoutError(
                f'{world_size - len(missing)} of WORLD_SIZE={world_size} processes have come to {address}:{port} '
                f'within {within:g} s; missing: {_ranks(missing)}. Are they running, with this MASTER_ADDR and '
                'MASTER_PORT, and is WORLD_SIZE right? Slower starts need dist_params=dict(join_within=…)'
            )
        if missing and now - told > _TELL:
            told = now
            get_logger('runnerkit').info(
                'waiting at %s:%d for %s of %d processes', address, port, _ranks(missing), world_size
            )
        if missing:
            time.sleep(_POLL)
    store.set(_ALL, '')


def _come(store: Any, rank: int, world_size: int, within: float) -> None:
    why = ''
    try:
        store.wait([_SIZE], timedelta(seconds=within))
        size = int(store.get(_SIZE))
        if size != world_size:
            why = f'the processes do not agree: WORLD_SIZE is {size} for rank 0, and {world_size} for rank {rank}'
        elif store.add(f'{_RANK}{rank}/count', 1) > 1:
            why = f'two processes have RANK={rank}: each needs a number of its own'
        store.set(_REFUSED if why else _RANK + str(rank), why)
        # Rank 0 may have begun to wait later than this one.
        store.wait([_ALL], timedelta(seconds=2 * within))
    except RuntimeError as error:
        raise ToldByFirstRank('the processes have not met, as rank 0 says') from error
    if why:  # and rank 0 has gone on, since it does not miss this process
        raise ValueError(why)


def _ranks(ranks: Sequence[int]) -> str:
    named = ', '.join(map(str, ranks[:_MOST]))
    return f'rank{"s" * (len(ranks) > 1)} {named}' + (f' … ({len(ranks)} in all)' if len(ranks) > _MOST else '')


def _first_line(text: str) -> str:
    return text.strip().partition('\n')[0].rstrip('.')
