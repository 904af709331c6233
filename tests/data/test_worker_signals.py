"""Loader workers and signals."""

import ctypes
import os
import select
import signal
import threading
import time

import pytest
import torch
from torch.utils.data import Dataset

from runnerkit.data import build_dataloader
from runnerkit.data.worker_signals import outlive_signals


class Pids(Dataset):
    """Each sample is the number of the process that made it."""

    def __len__(self):
        return 40

    def __getitem__(self, i):
        return torch.tensor(os.getpid())


# A worker that is spawned is thorough: the same function is called in it.
@pytest.mark.parametrize(
    'seeded, context', [(True, 'fork'), (False, 'fork'), pytest.param(True, 'spawn', marks=pytest.mark.thorough)]
)
def test_a_worker_serves_on(seeded, context):
    batches = iter(build_dataloader(Pids(), 1, 1, seeded=seeded, multiprocessing_context=context, prefetch_factor=1))
    worker = int(next(batches))
    assert worker != os.getpid()
    for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGTERM):
        os.kill(worker, number)
    assert {int(batch) for batch in batches} == {worker}


@pytest.mark.parametrize('terms, seconds', [(1, 0.3), (2, 0.0)])
def test_sigterm_ends_it_in_the_end(terms, seconds):
    """After a while, and by a second one at once; also where Python is busy with something else."""
    inbox, outbox = os.pipe()
    pid = os.fork()
    if pid == 0:
        outlive_signals(grace=0.3 if terms == 1 else 600.0)
        os.write(outbox, b'x')
        time.sleep(600)
        os._exit(9)
    os.read(inbox, 1)
    began = time.time()
    for _ in range(terms):
        os.kill(pid, signal.SIGTERM)
        time.sleep(0.05)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert seconds <= time.time() - began < 300


def sigstop():
    os.kill(os.getpid(), signal.SIGSTOP)


def keep_the_interpreter_lock():
    ctypes.PyDLL(None).sleep(600)


class Stuck(Pids):
    """The worker that makes sample 1 is stuck."""

    def __init__(self, how):
        self.how = how

    def __getitem__(self, i):
        if i == 1:
            self.how()
        return super().__getitem__(i)


@pytest.mark.parametrize('data', [Pids(), Stuck(sigstop), Stuck(keep_the_interpreter_lock)])
def test_a_worker_goes_with_its_parent(data):
    """It would hold the connections of a killed rank, whose death the other ranks would not notice."""
    inbox, outbox = os.pipe()
    pid = os.fork()
    if pid == 0:
        torch.utils.data._utils.worker.MP_STATUS_CHECK_INTERVAL = 1e6  # when torch's own workers look
        os.close(inbox)
        batches = iter(build_dataloader(data, 1, 2, prefetch_factor=1, shuffle=False))
        next(batches)
        os.write(outbox, b'x')
        time.sleep(1e6)
    os.close(outbox)
    assert os.read(inbox, 1) == b'x'
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    # What the two workers hold of it is closed when both have gone.
    assert select.select([inbox], [], [], 100)[0] == [inbox]
    assert os.read(inbox, 1) == b''
    os.close(inbox)


def test_a_worker_outlives_the_thread_that_began_it():
    batches = []

    def begin():
        batches.append(iter(build_dataloader(Pids(), 1, 1, prefetch_factor=1)))
        next(batches[0])

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    assert len(list(batches[0])) == 39
