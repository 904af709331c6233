"""Functions over tasks with a progress bar, as MMCV 1.7.2 drew it."""

import io
import multiprocessing
import os
import signal
import time

import pytest

from runnerkit.compat.mmcv.progress import start_pool, track_iter_progress, track_parallel_progress, track_progress
from runnerkit.utils import progress


@pytest.fixture(autouse=True)
def still(monkeypatch):
    """A clock that stands still, and a line of 80 columns."""
    monkeypatch.setattr(progress, 'perf_counter', lambda: 0.0)
    monkeypatch.setenv('COLUMNS', '80')


def test_it_is_drawn_on_what_stdout_is_by_then(capsys):
    assert track_progress(abs, [-1], bar_width=2) == [1]
    assert capsys.readouterr().out.startswith('[  ] 0/1')


def test_tracking_a_function():
    file = io.StringIO()
    assert track_progress(pow, [2, 3], bar_width=2, file=file, exp=2) == [4, 9]
    told = 'inf task/s, elapsed: 0s, ETA:     0s'
    drawn = f'[  ] 0/2, elapsed: 0s, ETA:\r[> ] 1/2, {told}\r[>>] 2/2, {told}\n'
    assert file.getvalue() == drawn
    assert track_progress(abs, (iter([-1, -2]), 2), file=file) == [1, 2]
    file = io.StringIO()
    seen = []
    for task in track_iter_progress((iter('ab'), 2), bar_width=2, file=file):
        seen.append((task, file.getvalue().count('\r')))
    assert seen == [('a', 0), ('b', 1)]
    assert file.getvalue() == drawn
    assert track_progress(abs, [], file=(file := io.StringIO())) == []
    assert file.getvalue() == 'completed: 0, elapsed: 0s\n'


@pytest.mark.parametrize('track', [track_progress, lambda func, tasks: track_parallel_progress(func, tasks, 1)])
def test_tasks_that_cannot_be_counted(track):
    with pytest.raises(TypeError, match=r'has no len\(\): give it with the number of its tasks'):
        track(abs, (each for each in [1]))
    with pytest.raises(TypeError, match=r'"tasks" must be an iterable object or a \(iterator, int\) tuple'):
        track(abs, 5)
    for wrong in ((1, 2), ([1], 1.0), ([1], 1, 1)):
        with pytest.raises(AssertionError, match='must hold an iterable and the number of tasks'):
            track(abs, wrong)


def sleep_or_fail(seconds):
    if seconds < 0:
        raise RuntimeError(f'cannot sleep {seconds}')
    time.sleep(seconds)
    return seconds


def tell_pid(path):
    with open(path, 'a') as file:
        file.write(f'{os.getpid()}\n')


def test_tracking_several_processes(tmp_path):
    tasks = [0.05, 0.0, 0.01, 0.0]
    file = io.StringIO()
    pids = tmp_path / 'pids'
    done = track_parallel_progress(sleep_or_fail, tasks, 2, tell_pid, (str(pids),), bar_width=4, file=file)
    assert done == tasks
    assert len(set(pids.read_text().split())) == 2
    assert [drawn.split(',')[0] for drawn in file.getvalue().split('\r')] == [
        '[    ] 0/4',
        '[>   ] 1/4',
        '[>>  ] 2/4',
        '[>>> ] 3/4',
        '[>>>>] 4/4',
    ]
    assert file.getvalue().endswith('\n')
    unordered = track_parallel_progress(sleep_or_fail, (iter([0.5, 0.0]), 2), 2, keep_order=False, file=file)
    assert unordered == [0.0, 0.5]
    with pytest.raises(TypeError, match='"initargs" must be a tuple'):
        track_parallel_progress(sleep_or_fail, tasks, 2, tell_pid, str(pids), file=file)


def test_the_first_tasks_may_be_left_out_of_the_estimate():
    file = io.StringIO()
    done = track_parallel_progress(abs, range(5), 2, bar_width=4, chunksize=2, skip_first=True, file=file)
    assert done == [0, 1, 2, 3, 4]
    assert [drawn.split(',')[0] for drawn in file.getvalue().split('\r')] == ['[    ] 0/1', '[>>>>] 1/1']
    few = io.StringIO()
    assert track_parallel_progress(abs, [-1], 2, skip_first=True, file=few) == [1]
    assert few.getvalue() == '\n'


def test_an_error_ends_the_processes(tmp_path):
    pids = tmp_path / 'pids'
    with pytest.raises(RuntimeError, match='cannot sleep -1'):
        track_parallel_progress(sleep_or_fail, [-1, 60, 60], 2, tell_pid, (str(pids),), file=io.StringIO())
    for pid in set(pids.read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def sigterm(task):
    return signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_processes_can_be_ended_although_this_one_handles_sigterm_itself():
    former = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        assert track_parallel_progress(sigterm, range(4), 2, file=io.StringIO()) == [True] * 4
    finally:
        signal.signal(signal.SIGTERM, former)


def test_a_pool_ends_at_once_although_this_process_ignores_sigterm():
    former = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        for _ in range(20):  # the signal arrives while the processes are still starting
            pool = start_pool(4)
            children = [child.pid for child in multiprocessing.active_children()]
            assert len(children) == 4
            pool.terminate()
            pool.join()
            assert multiprocessing.active_children() == []
        assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        signal.signal(signal.SIGTERM, former)
