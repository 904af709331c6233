"""Ranks that are frozen or stuck at each place of a run: all processes of the run end, and say why."""

import importlib
import os
import signal
import socket
import time
from pathlib import Path

import frozen
import pytest
from forks import Fork, launch

#: By where the process of which rank is stopped, or what is stuck: the exit codes without a launcher.
FAULTS = {
    'start of 1': [1, -9],
    'training of 1': [1, -9],
    'evaluation of 1': [1, -9],
    'evaluation of 0': [-9, 1],
    'saving of 1': [1, -9],
    'exit of 1': [1, -9],
    'patience': [-9, 1],
    'error and stuck save': [1, 1],
    'error and stuck exit': [1, 1],
}

#: Those in which rank 0 keeps the store and is stopped, so that the store does not answer any more.
WITHOUT_STORE = ('evaluation of 0', 'patience')


def run_of(fault, folder):
    """Start both ranks; they meet in a file, or at rank 0."""
    folder.mkdir()
    if fault in WITHOUT_STORE:
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            init = f'timeout=600)\nimport os\nos.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="{free.getsockname()[1]}"'
    else:
        init = f'init_method="file://{folder}/meet"'
    (folder / 'cfg.py').write_text(frozen.CONFIG.replace('HERE', frozen.__file__).replace('INIT', init))
    folders = [folder / str(rank) for rank in range(2)]
    for each in folders:
        each.mkdir()
    return [Fork(frozen.train, rank, folder, fault, folder=folders[rank]) for rank in range(2)]


@pytest.fixture(scope='module')
def ended(tmp_path_factory):
    """The exit codes of both ranks and what they have said, by fault. All runs wait at the same time."""
    importlib.import_module('torch._dynamo')  # once here, rather than in each fork
    root = tmp_path_factory.mktemp('ends')
    runs = {fault: run_of(fault, root / fault.replace(' ', '_')) for fault in FAULTS}
    codes = {}
    deadline = time.monotonic() + 300
    while len(codes) < 2 * len(runs):
        for fault, forks in runs.items():
            for rank, fork in enumerate(forks):
                if (fault, rank) in codes:
                    continue
                pid, status = os.waitpid(fork.pid, os.WNOHANG)
                if pid:
                    codes[fault, rank] = os.waitstatus_to_exitcode(status)
                elif time.monotonic() > deadline:
                    codes[fault, rank] = 'still there'
                    fork.send(signal.SIGKILL)
                    fork.code()
        time.sleep(0.05)
    return {
        fault: ([codes[fault, 0], codes[fault, 1]], [fork.said() for fork in forks], log_of(root / fault.replace(' ', '_')))
        for fault, forks in runs.items()
    }


def log_of(folder):
    return ''.join(path.read_text() for path in (folder / 'run').glob('*.log'))


@pytest.mark.distributed
@pytest.mark.parametrize('fault', FAULTS)
def test_no_process_is_left(fault, ended):
    codes, said, log = ended[fault]
    assert codes == FAULTS[fault], said
