"""A tiny training for `test_ends`, one rank of which is frozen or stuck at a given place."""

import atexit
import ctypes
import os
import signal
import sys
import threading
from datetime import timedelta

import torch
from torch import distributed as dist
from torch.utils.data import Dataset

from runnerkit.checkpoint.store import Store
from runnerkit.cli.train import main
from runnerkit.distributed import broadcast_patiently, watch
from runnerkit.flow import Flow  # noqa: F401  (once here, rather than in each fork)
from runnerkit.hooks import Hook

#: Seconds after which the other rank misses a frozen one.
MISSED = 2

CONFIG = """
model = dict(type='Supervised', model=[dict(type='Linear', in_features=4, out_features=1)], loss=dict(type='MSELoss'))
data = dict(samples_per_gpu=2, train=dict(type='HERE:Points'), val=dict(type='HERE:Points'))
optimizer = dict(type='SGD', lr=0.1)
optimizer_config = dict()
runner = dict(type='EpochBasedRunner', max_epochs=2)
workflow = [('train', 1), ('val', 1)]
checkpoint_config = dict(interval=1, async_save=True)
flow = dict(terminal=None)
log_config = dict(interval=1, hooks=[dict(type='TextLoggerHook')])
dist_params = dict(end_within=10, INIT)
custom_hooks = [dict(type='HERE:Fault')]
seed = 3
"""


class Points(Dataset):
    """Four points."""

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.ones(4), torch.ones(1)


def keep_the_interpreter_lock():
    ctypes.PyDLL(None).sleep(600)


class Fault(Hook):
    """What happens at the place that ``FAULT`` names, such as ``'evaluation of 1'``: the process of that rank stops."""

    def before_run(self, runner):
        self.at('start')

    def after_train_iter(self, runner):
        self.at('training')
        if os.environ['FAULT'].startswith('error') and runner.rank == 1 and runner.epoch == 1:
            raise ZeroDivisionError('a bug of the user')

    def after_val_iter(self, runner):
        self.at('evaluation')
        self.at('lock', freeze=keep_the_interpreter_lock)

    def after_val_epoch(self, runner):
        self.at('patience')
        if os.environ['FAULT'].startswith('patience'):
            broadcast_patiently(None)

    def state_dict(self):
        self.at('saving')
        return {}

    def after_run(self, runner):
        self.at('exit')

    def at(self, here, freeze=lambda: os.kill(os.getpid(), signal.SIGSTOP)):
        place, _, rank = os.environ['FAULT'].partition(' of ')
        if place != here:
            return
        # Only now, so that a slow machine changes nothing. The other rank learns of it in one of two ways.
        if place in ('training', 'evaluation', 'lock', 'saving'):
            dist.distributed_c10d._set_pg_timeout(timedelta(seconds=MISSED), dist.group.WORLD)
        else:
            watch._running._hang_after = MISSED
        if rank == os.environ['RANK']:
            freeze()


class Teardown:
    """Something that keeps the interpreter's lock when Python takes its modules apart."""

    def __del__(self):
        keep_the_interpreter_lock()


def begin_to_be_stuck(fault, rank):
    """Prepare what will be stuck later: a save in the background, a thread, the interpreter's exit."""
    for_ever = threading.Event().wait
    if fault == 'error and stuck save' and rank == 0:
        Store.write = lambda *args: for_ever()
    elif fault == 'error and stuck exit' and rank == 0:
        threading.Thread(target=for_ever).start()
    elif fault == 'error and stuck exit':
        sys.modules['teardown'] = Teardown()


def train(rank, folder, fault, port=None):
    """Train, and leave as a Python program does.

    Args:
        rank: None if a launcher has set it.
        folder: has the config.
        fault: see `Fault` and `begin_to_be_stuck`.
        port: where the ranks meet, if they do not in a file.
    """
    torch.set_num_threads(1)
    atexit._clear()  # what the process has registered from which this one was forked
    if rank is not None:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE='2')
        os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=port)
    os.environ['FAULT'] = fault.removesuffix(', far')
    if fault.endswith(', far'):
        watch._machine = lambda: os.environ['RANK']
    begin_to_be_stuck(fault, int(os.environ['RANK']))
    code = main([str(folder / 'cfg.py'), '--work-dir', str(folder / 'run'), '--launcher', 'pytorch', '--device', 'cpu'])
    ctypes.pythonapi.Py_Exit(code)
