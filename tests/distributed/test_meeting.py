"""Processes that meet at a store, here threads: who is missing, and what they do not agree on, is told by one."""

import logging
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from support import free_port
from torch.distributed import TCPStore

from runnerkit.distributed import meeting
from runnerkit.distributed.meeting import meet
from runnerkit.utils.exceptions import ToldByFirstRank
from runnerkit.utils.logging import get_logger


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
    monkeypatch.setattr(meeting, '_LOG_EVERY', 0.5)
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
