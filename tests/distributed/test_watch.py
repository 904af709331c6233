"""Ranks that raise, die or hang, in real processes that no launcher ends: the others end, and name the one."""

import contextlib
import ctypes
import importlib
import json
import logging
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from forks import Fork

from runnerkit.distributed import Watch
from runnerkit.distributed import watch as watch_module
from runnerkit.distributed.watch import describe_error, is_lost, record, stands_at, verdict

CONFIG = """
model = dict(type='Supervised', model=[dict(type='Linear', in_features=4, out_features=1)], loss=dict(type='MSELoss'))
data = dict(samples_per_gpu=2, workers_per_gpu=WORKERS, train=dict(type='{{ fileDirname }}/faults.py:Points'))
optimizer = dict(type='SGD', lr=0.1)
optimizer_config = dict()
runner = dict(type='EpochBasedRunner', max_epochs=50)
checkpoint_config = None
flow = dict(terminal=None)
log_config = dict(interval=4, hooks=[dict(type='TextLoggerHook')])
dist_params = dict(init_method='file://{{ fileDirname }}/meet', end_within=END_WITHIN, hang_after=HANG_AFTER)
custom_hooks = [dict(type='{{ fileDirname }}/faults.py:Fault')]
seed = 3
"""

FAULTS = """
import faulthandler, os, signal, sys, threading, time
import torch
from torch.utils.data import Dataset
from runnerkit.hooks import Hook
from runnerkit.utils.ending import Grace

Grace.__init__.__defaults__ = (0.5,)


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
                time.sleep(0.5)
                os.kill(os.getpid(), signal.SIGTERM)
                while not runner.is_ending:
                    time.sleep(0.05)
            if 'elsewhere' in fault and runner.iter == 5:
                time.sleep(60)  # in no collective
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
            threading.Event().wait(60)

    def after_run(self, runner):
        if 'stuck' in os.environ['FAULT'] and runner.rank == 1:
            time.sleep(60)
"""


def train(rank, folder, fault, world_size=2):
    from runnerkit.cli.train import main

    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world_size), FAULT=fault)
    sys.path.insert(0, str(folder))
    return main([str(folder / 'cfg.py'), '--work-dir', str(folder / 'run'), '--launcher', 'pytorch', '--device', 'cpu'])


class Faulty:
    """A run on two ranks with a fault; and what became of it: exit codes, what each said, and rank 0's log file."""

    def __init__(self, folder, fault, end_within=30, hang_after=600, workers=0):
        text = CONFIG.replace('END_WITHIN', str(end_within)).replace('HANG_AFTER', str(hang_after))
        (folder / 'cfg.py').write_text(text.replace('WORKERS', str(workers)))
        (folder / 'faults.py').write_text(FAULTS)
        importlib.import_module('torch._dynamo')  # once here, rather than in each fork: torch's optimizers want it
        self.folder, self.began, self.forks = folder, time.monotonic(), []
        for rank in range(2):
            (folder / str(rank)).mkdir()
            self.forks.append(Fork(train, rank, folder, fault, folder=folder / str(rank)))

    def end(self):
        """Wait for both ranks."""
        codes = {}
        while len(codes) < 2:
            for rank in {0, 1} - set(codes):
                pid, status = os.waitpid(self.forks[rank].pid, os.WNOHANG)
                if pid:
                    codes[rank] = os.waitstatus_to_exitcode(status)
                elif time.monotonic() - self.began > 100:
                    self.forks[rank].send(signal.SIGKILL)
            time.sleep(0.05)
        self.codes = [codes[0], codes[1]]
        self.said = [(self.folder / str(rank) / 'stderr').read_text() for rank in range(2)]
        (path,) = (self.folder / 'run').glob('*.log')
        self.log = path.read_text()
        return self


#: Runs that wait at the same time, by fault: first those that end as soon as they can, then those that time out.
AT_ONCE = {
    **{fault: {} for fault in ('raises', 'killed', 'aborts', 'SIGTERM twice', 'exits', 'killed, told to stop')},
    'worker': {'workers': 1},
}
LATE = {
    'raises elsewhere': {'end_within': 4},
    'raises stuck': {'end_within': 4},
    'hangs': {'end_within': 1, 'hang_after': 5},
}


@pytest.fixture(scope='module')
def ended(tmp_path_factory):
    """What became of each run with a fault."""
    found = {}
    for faults in (AT_ONCE, LATE):
        runs = {fault: Faulty(tmp_path_factory.mktemp('run'), fault, **options) for fault, options in faults.items()}
        found |= {fault: run.end() for fault, run in runs.items()}
    return found


@pytest.mark.parametrize('where', ['', ' elsewhere', ' stuck'])
@pytest.mark.distributed
def test_a_rank_that_raises(ended, where):
    """While the other one is in a collective; while it is in none; and while the failed one cannot leave."""
    ended = ended[f'raises{where}']
    assert ended.codes == [1, 1]
    assert "raise ZeroDivisionError('a bug of the user')" in ended.said[1]
    assert 'rank 1 (on ' in ended.said[0]
    assert "raise ZeroDivisionError('a bug of the user')" in ended.log
    if where == ' elsewhere':
        assert 'rank 0 is ended where it is' in ended.said[0]
        assert 'faults.py' in ended.said[0].partition('most recent call first')[2]


@pytest.mark.parametrize(
    'fault, code, told',
    [
        ('killed', -9, 'has died without an error'),
        ('aborts', -6, '-6: it was aborted, by gloo if the ranks called different collectives'),
        ('SIGTERM twice', 143, 'has died without an error'),
        ('exits', 1, 'SystemExit: 256'),
    ],
)
@pytest.mark.distributed
def test_a_rank_that_goes(ended, fault, code, told):
    ended = ended[fault]
    assert ended.codes == [1, code]
    assert f'error: rank 1 ({"on " if code == 1 else "process"}' in ended.said[0]
    assert told in ended.said[0]
    assert told in ended.log
    assert ('Rank 0 was then at\n' in ended.log) == (code != 1)


@pytest.mark.distributed
def test_a_rank_that_goes_while_the_others_are_told_to_stop(ended):
    """As torchrun does with them: they do not wait for its answer."""
    ended = ended['killed, told to stop']
    assert ended.codes == [1, -9]
    assert 'error: rank 1 (process' in ended.said[0]
    assert 'is ended where it is' not in ended.said[0]


@pytest.mark.distributed
def test_an_error_in_a_data_worker(ended):
    ended = ended['worker']
    assert ended.codes == [1, 1]
    assert "raise ZeroDivisionError('this sample is broken')" in ended.log
    assert 'in DataLoader worker process 0' in ended.log


@pytest.mark.distributed
def test_a_rank_that_hangs(ended):
    """It is named with its stack, first in a warning; all ranks show their stacks."""
    ended = ended['hangs']
    assert ended.codes == [1, 1]
    warning, _, error = ended.log.partition('The run is ended if this lasts 5 s')
    for text in (warning, error):
        _, _, found = text.partition('No iteration has been finished for ')
        culprit, _, other = found.partition('rank 0: waits for the others at')
        assert 'rank 1: waits for no other rank; it is at' in culprit
        assert 'threading.Event().wait(60)' in culprit
        assert 'all_reduce' in other or 'backward' in other
    assert 'The run is ended (dist_params.hang_after=5)' in error
    assert 'rank 1 is ended where it is' in ended.said[1]  # the other one may lose its connection first
    assert 'in after_train_iter' in ended.said[1].partition('most recent call first')[2]


def lose(rank, folder):
    """On rank 0, an evaluation has waited too long for rank 1, as torch tells it."""
    logger = logging.getLogger('lose')
    logger.addHandler(logging.StreamHandler())
    torch.distributed.init_process_group('gloo', init_method=f'file://{folder}/meet', rank=rank, world_size=2)
    with Watch(logger):
        if rank == 0:
            raise RuntimeError('[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting for recv operation')
        threading.Event().wait(300)


@pytest.mark.thorough  # test_a_rank_that_hangs
@pytest.mark.distributed
def test_a_collective_that_nobody_has_failed_in_tells_where_all_ranks_stood(tmp_path):
    folders = [tmp_path / str(rank) for rank in range(2)]
    for folder in folders:
        folder.mkdir()
    forks = [Fork(lose, rank, tmp_path, folder=folders[rank]) for rank in range(2)]
    assert [fork.code() for fork in forks] == [1, 1]
    _, _, found = forks[0].said().partition('Where the ranks stood then.')
    assert 'rank 1: waits for no other rank; it is at' in found
    assert 'threading.Event().wait(300)' in found
    assert 'rank 1 is ended where it is, since rank 0 (on ' in forks[1].said()


def catches_and_goes_on(folder):
    watch_module._ANSWER = 0.1
    torch.distributed.init_process_group('gloo', init_method=f'file://{folder}/meet', rank=0, world_size=1)
    for fails in (True, False):
        watch = Watch(logging.getLogger('goes on'), end_within=1.5)
        with contextlib.suppress(ZeroDivisionError), contextlib.closing(SimpleNamespace(close=watch.finish)), watch:
            if fails:
                raise ZeroDivisionError
        watch._learn(watch_module._note(1, 'what a thread has read before'))
    torch.distributed.destroy_process_group()
    time.sleep(1.7)
    threading.Timer(1.7, os._exit, [6]).start()  # the exit waits for it
    ctypes.pythonapi.Py_Exit(5)


@pytest.mark.thorough  # test_a_rank_that_raises
def test_a_program_that_catches_the_error_and_goes_on_is_not_ended(tmp_path):
    fork = Fork(catches_and_goes_on, tmp_path, folder=tmp_path)
    assert fork.code() == 6, fork.said()


def test_where_a_rank_stands():
    with ThreadPoolExecutor(1) as other:
        found = other.submit(stands_at, threading.get_ident()).result()
    assert not found['waits']
    assert 'test_where_a_rank_stands' in found['stack']
    found = stands_at(threading.get_ident())  # which is in runnerkit/distributed
    assert found['waits']


def test_the_verdict_names_those_who_keep_the_others_waiting_first():
    waits, works = {'waits': True, 'stack': 'in all_reduce'}, {'waits': False, 'stack': 'in my_hook'}
    culprit, text = verdict([waits, waits, works, waits], 'It hangs.')
    assert culprit == 2
    assert text == (
        'It hangs.\n'
        'rank 2: waits for no other rank; it is at\nin my_hook\n'
        'ranks 0, 1, 3: waits for the others at\nin all_reduce'
    )
    culprit, text = verdict([waits, None], 'It hangs.')
    assert culprit == 1
    assert text.index('rank 1: gave no answer') < text.index('rank 0: waits')
    assert verdict([works, works], 'It hangs.')[0] is None
    culprit, text = verdict([waits, {**waits, 'stack': 'in barrier'}], 'It hangs.')
    assert culprit is None
    assert 'All ranks wait, perhaps in different collectives.' in text


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
        described = describe_error(error, 3)
    assert described.startswith('rank 3 (on ')
    assert described.endswith('ValueError: a bug of the user')
    message = json.loads((tmp_path / 'error.json').read_text())['message']
    assert message['message'] == 'ValueError: a bug of the user'
    assert 'test_an_error_is_left_for_torchrun' in message['extraInfo']['py_callstack']


@pytest.mark.parametrize('options', [{'end_within': 0}, {'end_within': None}, {'hang_after': -1}, {'hang_after': True}])
def test_wrong_seconds(options):
    with pytest.raises(ValueError, match=f'{next(iter(options))} must be more than 0 seconds'):
        Watch(logging.getLogger('runnerkit'), **options)


@pytest.mark.parametrize('done, stage', [(0, 1), (1, 2)])
def test_only_the_first_iteration_may_take_three_times_as_long(done, stage):
    """However fast the ones were that nobody has seen."""
    watch = Watch(logging.getLogger('runnerkit'), heartbeat=lambda: (done, 5), hang_after=60)
    watch._main, watch._set = threading.get_ident(), lambda *args: None
    watch._time()
    watch._looks += int(61 / watch_module._BEAT)
    watch._time()
    assert watch._stage == stage


def test_the_time_for_which_a_job_is_suspended_does_not_count(monkeypatch):
    watch = Watch(logging.getLogger('runnerkit'), heartbeat=lambda: (1, 5), hang_after=60)
    watch._main, watch._set = threading.get_ident(), lambda *args: None
    watch._time()
    monkeypatch.setattr(watch_module, 'time', SimpleNamespace(monotonic=lambda: time.monotonic() + 3600))
    watch._looks += 1
    watch._time()
    assert watch._stage == 0


def test_ranks_that_all_work_are_not_ended():
    said, told = [], []
    logger = SimpleNamespace(warning=lambda text, *args: said.append(text % args))
    watch = Watch(logger, hang_after=60)
    watch._publish = lambda *note, **more: told.append(note)
    works, waits = {'waits': False, 'stack': 'in my_hook'}, {'waits': True, 'stack': 'in all_reduce'}
    watch._stage = 1
    watch._judge([works, waits], 31, 60)
    assert 'The run is ended if this lasts 60 s' in said[0]
    watch._stage, watch._looks = 2, 122
    watch._judge([works, None], 61, 60)
    assert told == []
    assert watch._answers_until > 61  # they are asked again
    watch._judge([waits, works], 71, 60)
    ((culprit, text),) = told
    assert culprit == 1
    assert text.endswith('The run is ended (dist_params.hang_after=60)')
