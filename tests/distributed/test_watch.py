"""Ranks that raise, die, hang or are stuck, in real processes: each one ends, by itself or because it loses another."""

import contextlib
import ctypes
import importlib
import json
import logging
import os
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import torch
from forks import CleanFork, Fork

from runnerkit.distributed import Watch
from runnerkit.distributed.watch import is_lost, record

CONFIG = """
model = dict(type='Supervised', model=[dict(type='Linear', in_features=4, out_features=1)], loss=dict(type='MSELoss'))
data = dict(samples_per_gpu=2, workers_per_gpu=WORKERS, train=dict(type='{{ fileDirname }}/faults.py:Points'))
optimizer = dict(type='SGD', lr=0.1)
optimizer_config = dict()
runner = dict(type='EpochBasedRunner', max_epochs=50)
checkpoint_config = None
flow = dict(terminal=None)
log_config = dict(interval=4, hooks=[dict(type='TextLoggerHook')])
dist_params = dict(INITend_within=END_WITHIN, hang_after=HANG_AFTER)
custom_hooks = [dict(type='{{ fileDirname }}/faults.py:Fault')]
seed = 3
"""

FAULTS = """
import faulthandler, os, signal, sys, threading, time
import torch
from torch.utils.data import Dataset
from runnerkit.distributed import agreement
from runnerkit.hooks import Hook
from runnerkit.utils.ending import Grace

Grace.__init__.__defaults__ = (0.5,)
agreement._PATIENCE = 2


class Points(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, i):
        if 'worker' in os.environ['FAULT'] and os.environ['RANK'] == '1' and i > 20:
            raise ZeroDivisionError('this sample is broken')
        return torch.ones(4), torch.ones(1)


class Fault(Hook):
    def after_train_iter(self, runner):
        fault = os.environ['FAULT']
        if 'hangs' in fault and runner.iter == 3:
            time.sleep(1.5)  # long enough for the watch to see that the run moves
        if runner.iter != 5 or runner.rank != 1:
            if 'told to stop' in fault and runner.iter == 5:
                os.kill(os.getpid(), signal.SIGTERM)
                while not runner.is_ending:
                    time.sleep(0.05)
            if 'elsewhere' in fault and runner.iter == 5:
                threading.Event().wait(100)  # in no collective
            return
        if 'raises' in fault:
            raise ZeroDivisionError('a bug of the user')
        if 'killed' in fault:
            os.kill(os.getpid(), signal.SIGKILL)
        if 'aborts' in fault:
            faulthandler.disable()  # that of pytest
            os.abort()
        if 'exits' in fault:
            sys.exit(256)
        if 'twice' in fault:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGTERM)
        if 'hangs' in fault or 'twice' in fault:
            threading.Event().wait(100)

    def after_run(self, runner):
        if 'stuck' in os.environ['FAULT'] and runner.rank == 1:
            threading.Event().wait(100)
"""


def train(rank, folder, fault):
    from runnerkit.cli.train import main

    torch.set_num_threads(1)
    if rank is not None:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE='2')
    os.environ['FAULT'] = fault
    sys.path.insert(0, str(folder))
    return main([str(folder / 'cfg.py'), '--work-dir', str(folder / 'run'), '--launcher', 'pytorch', '--device', 'cpu'])


def prepare(folder, init, end_within=30, hang_after=600, workers=0):
    text = CONFIG.replace('END_WITHIN', str(end_within)).replace('HANG_AFTER', str(hang_after)).replace('INIT', init)
    (folder / 'cfg.py').write_text(text.replace('WORKERS', str(workers)))
    (folder / 'faults.py').write_text(FAULTS)


class Faulty:
    """A run on two ranks with a fault; and what became of it: exit codes, stderr of both, and rank 0's log file."""

    def __init__(self, folder, fault, **options):
        prepare(folder, 'init_method="file://{{ fileDirname }}/meet", ', **options)
        importlib.import_module('torch._dynamo')  # once here, rather than in each fork: torch's optimizers want it
        self.folder, self.forks = folder, []
        for rank in range(2):
            (folder / str(rank)).mkdir()
            self.forks.append(Fork(train, rank, folder, fault, folder=folder / str(rank)))

    def end(self):
        """Wait for both ranks."""
        self.codes = [fork.code() for fork in self.forks]
        self.said = [fork.said() for fork in self.forks]
        (path,) = (self.folder / 'run').glob('*.log')
        self.log = path.read_text()
        return self


#: Runs that wait at the same time, by fault.
RUNS = {
    **{fault: {} for fault in ('raises', 'killed', 'aborts', 'SIGTERM twice', 'exits', 'killed, told to stop')},
    'worker': {'workers': 1},
    'raises stuck': {'end_within': 2},
    'hangs': {'hang_after': 5},
}


@pytest.fixture(scope='module')
def ended(tmp_path_factory):
    """What became of each run with a fault."""
    runs = [Faulty(tmp_path_factory.mktemp('run'), fault, **options) for fault, options in RUNS.items()]
    return {fault: run.end() for fault, run in zip(RUNS, runs, strict=True)}


@pytest.mark.parametrize(
    'fault, code, text',
    [
        ('raises', 1, "raise ZeroDivisionError('a bug of the user')"),
        ('raises stuck', 1, 'Timeout (0:00:0'),
        ('worker', 1, 'this sample is broken'),
        ('exits', 1, 'SystemExit: 256'),
        ('killed', -9, ''),
        ('killed, told to stop', -9, ''),
        ('aborts', -6, ''),
        ('SIGTERM twice', 143, 'SIGTERM: the process has not left within 0.5 s'),
    ],
)
@pytest.mark.distributed
def test_a_rank_that_goes(ended, fault, code, text):
    """The other one loses its connection, or gets no answer, and its log says why that may be."""
    run = ended[fault]
    assert run.codes == [1, code]
    assert text in run.said[1]
    assert run.said[0].splitlines()[-1].startswith('rank 0 ends: another rank has died or does not answer: see its')
    assert 'gloo/' not in run.said[0]
    assert fault != 'raises' or run.said[1].splitlines()[-1] == 'error: rank 1: a bug of the user'
    assert 'Traceback' not in run.said[0]
    assert 'Run failed: ' in run.log
    assert '-6: it was aborted, by gloo if the ranks called different collectives' in run.log
    assert ('in after_run' in run.said[1]) == (fault == 'raises stuck')


@pytest.mark.distributed
def test_a_rank_that_hangs(ended):
    """Each rank ends itself, with its stacks on stderr; those of rank 0 are in the log as well."""
    run, text = ended['hangs'], 'no iteration has been finished for 5 s (dist_params.hang_after=5)'
    assert run.codes == [1, 1]
    assert 'in after_train_iter' in run.said[1].partition(f'{text}; the process is ended at')[2]
    if 'gloo' not in run.log:  # else rank 1 was the first to end, and took the connection along
        assert 'most recent call first' in run.log.partition(f'Run failed: {text}')[2]


def under_launcher(launch, folder, fault):
    launch(train, None, folder, fault)


@pytest.mark.thorough  # test_a_rank_that_goes; torchrun waits for 30 seconds
@pytest.mark.distributed
def test_the_launcher_ends_a_rank_that_waits_for_no_other(launch, tmp_path):
    prepare(tmp_path, '')
    fork = CleanFork(under_launcher, launch, tmp_path, 'raises elsewhere', folder=tmp_path)
    assert fork.code() == 1
    assert "ZeroDivisionError('a bug of the user')" in fork.said()


class Ended(BaseException):
    pass


@pytest.mark.parametrize(
    'beat, hang_after, looks', [((1, 5), 60, 120), ((0, 5), 60, 360), (None, 60, None), ((1, 5), None, None)]
)
def test_how_long_a_run_may_stay_where_it_is(beat, hang_after, looks):
    """The first iteration three times as long, an evaluation for ever. Looks are counted: a job may be suspended."""
    watch, seconds = Watch(logging.getLogger('runnerkit'), lambda: beat, hang_after=hang_after), []
    watch._over = SimpleNamespace(wait=lambda pause: len(seconds) == 1000 or seconds.append(pause))

    def end(passed):
        assert passed == looks * 0.5
        raise Ended

    watch._end_hanging = end
    with pytest.raises(Ended) if looks else contextlib.nullcontext():
        watch._run()
    assert len(seconds) == (1000 if looks is None else looks + 1)


def test_a_run_that_moves_is_not_ended():
    watch, beats = Watch(logging.getLogger('runnerkit'), lambda: (1, len(beats) // 100), hang_after=60), []
    watch._over = SimpleNamespace(wait=lambda pause: len(beats) == 1000 or beats.append(pause))
    watch._run()
    assert len(beats) == 1000


def catches_and_goes_on():
    for fails in (True, False):
        watch = Watch(logging.getLogger('goes on'), end_within=1)
        with contextlib.suppress(ZeroDivisionError), contextlib.closing(SimpleNamespace(close=watch.finish)), watch:
            if fails:
                raise ZeroDivisionError
    time.sleep(1.5)
    threading.Timer(1.5, os._exit, [6]).start()  # the exit waits for it
    ctypes.pythonapi.Py_Exit(5)


def fails_and_is_stuck_in_its_exit():
    watch = Watch(logging.getLogger('stuck'), end_within=2)
    with contextlib.suppress(ZeroDivisionError), contextlib.closing(SimpleNamespace(close=watch.finish)), watch:
        raise ZeroDivisionError
    threading.Thread(target=threading.Event().wait, args=(20,)).start()
    ctypes.pythonapi.Py_Exit(5)


@pytest.mark.parametrize('function, code', [(catches_and_goes_on, 6), (fails_and_is_stuck_in_its_exit, 1)])
def test_an_exit_has_a_limit_if_the_error_leads_to_it(function, code, tmp_path):
    fork = Fork(function, folder=tmp_path)
    assert fork.code() == code, fork.said()


def test_an_error_of_a_rank_that_has_lost_another_one():
    assert is_lost(torch.distributed.DistNetworkError('anything'))
    assert is_lost(RuntimeError('[gloo/transport/tcp/pair.cc:553] Connection closed by peer'))
    assert not is_lost(RuntimeError('shapes cannot be multiplied'))
    assert not is_lost(OSError('Connection reset by peer'))


def test_an_error_is_left_for_torchrun(tmp_path, monkeypatch):
    monkeypatch.delenv('TORCHELASTIC_ERROR_FILE', raising=False)
    record(ValueError('nobody asks'))
    monkeypatch.setenv('TORCHELASTIC_ERROR_FILE', str(tmp_path / 'error.json'))
    try:
        raise ValueError('a bug of the user')
    except ValueError as error:
        record(error)
    message = json.loads((tmp_path / 'error.json').read_text())['message']
    assert message['message'] == 'ValueError: a bug of the user'
    assert 'test_an_error_is_left_for_torchrun' in message['extraInfo']['py_callstack']


@pytest.mark.parametrize('options', [{'end_within': 0}, {'end_within': None}, {'hang_after': -1}, {'hang_after': True}])
def test_wrong_seconds(options):
    with pytest.raises(ValueError, match=f'{next(iter(options))} must be more than 0 seconds'):
        Watch(logging.getLogger('runnerkit'), **options)
