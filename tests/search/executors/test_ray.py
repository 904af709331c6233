"""Trials on a Ray of one CPU, started here: the same as in a serial study, and nobody left behind."""

import asyncio
import os
import signal
import socket
import sys
import time
from multiprocessing import get_context
from pathlib import Path

import pytest
import studies
from odd_trials import job, members, run
from processes import family, parent
from studies import in_process, outcome, small_study

from runnerkit.search.executors import RayExecutor
from runnerkit.search.executors.ray import Mailbox, check_address, import_ray
from runnerkit.utils.env import is_alive


@pytest.fixture(scope='module')
def cluster():
    """A Ray with room for two trials that all tests share."""
    ray = pytest.importorskip('ray', reason='needs ray: pip install ray')
    os.environ['RAY_USAGE_STATS_ENABLED'] = '0'
    ray.init(address='local', num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level='ERROR')
    yield ray
    ray.shutdown()


def test_however_a_trial_ends_the_others_do_not_notice(cluster, tmp_path):
    whats = ['well', 'crash', 'raise']
    found = run(RayExecutor(), *(job(tmp_path, what, number) for number, what in enumerate(whats)))
    assert (found[0].status, found[0].step) == ('completed', 3)
    assert found[0].scores['loss'] > 0
    for number, words in ((1, 'exit code 7'), (2, 'this is odd')):
        assert found[number].status == 'failed'
        assert words in found[number].message
    (hung,) = run(RayExecutor(limit=3), job(tmp_path, 'hang')).values()
    assert (hung.status, hung.message) == ('failed', 'it took longer than 3 s, the limit')
    assert cluster.is_initialized()  # it is not the executor's


def test_reports_are_answered_and_pruning_is_obeyed(cluster, tmp_path):
    said = []

    def report(step, scores):
        said.append((step, sorted(scores)))
        return step == 2

    (result,) = run(RayExecutor(), job(tmp_path, 'well'), report=report).values()
    assert result.status == 'pruned'
    assert said == [(1, ['loss']), (2, ['loss'])]


def trial_process(folder, number=0):
    """The id of the process of a trial that hangs, once it does."""
    work_dir = str(Path(folder) / str(number))
    for _ in range(4000):
        for entry in Path('/proc').iterdir():
            try:
                words = (entry / 'cmdline').read_bytes().split(b'\0')
                if b'runnerkit.search.worker' not in words:
                    continue
                opened = [os.readlink(each) for each in (entry / 'fd').iterdir()]
            except OSError:
                continue
            if any(each.startswith(work_dir) and each.endswith('.log') for each in opened):
                if list(Path(work_dir).rglob('*.log*')):
                    return int(entry.name)
        time.sleep(0.05)
    pytest.fail('the trial has not begun')


needs_proc = pytest.mark.skipif(not Path('/proc/self/stat').exists(), reason='needs /proc')


@needs_proc
def test_a_lost_worker_is_started_again_and_goes_on(cluster, tmp_path):
    executor = RayExecutor(retries=1)
    reports = []

    def report(step, scores):
        reports.append(step)
        if step == 2 and reports.count(2) == 1:
            os.kill(parent(trial_process(tmp_path)), signal.SIGKILL)
        return False

    (result,) = run(executor, job(tmp_path, 'well'), report=report).values()
    assert (result.status, result.step) == ('completed', 3)
    # A run that goes on reports its last evaluation once more.
    assert reports == [1, 2, 1, 2, 3]
    logs = ''.join(path.read_text() for path in tmp_path.rglob('*.log'))
    assert 'epoch_1.pth' in logs
    assert logs.count('Epoch [1][') == logs.count('Epoch [3][')


@needs_proc
def test_a_worker_that_is_lost_too_often_is_recorded(cluster, tmp_path):
    def report(step, scores):
        os.kill(parent(trial_process(tmp_path)), signal.SIGKILL)
        return False

    (result,) = run(RayExecutor(retries=1), job(tmp_path, 'well'), report=report).values()
    assert result.status == 'failed'
    assert 'its Ray task was lost (WorkerCrashedError) 2 times' in result.message


@needs_proc
def test_no_process_stays_behind(cluster, tmp_path):
    executor = RayExecutor()
    with executor:
        for number in range(3):  # for the third one there is no room
            executor.start(job(tmp_path, 'hang', number), lambda step, scores: False)
        groups = [trial_process(tmp_path, number) for number in range(2)]
        assert executor.wait(0.5) == []
        assert all(members(group) for group in groups)
    assert [members(group) for group in groups] == [[], []]
    for _ in range(100):
        if cluster.available_resources().get('CPU') == 2:
            return
        time.sleep(0.1)
    pytest.fail('a task still has its CPU')


def test_stopped_trials_save_and_go_on(cluster, tmp_path):
    asked = []

    def report(step, scores):
        asked.append(step)
        if len(asked) == 1:
            executor.stop()
            time.sleep(2.5)
        return False

    executor = RayExecutor()
    (result,) = run(executor, job(tmp_path, 'well'), report=report).values()
    assert (result.status, result.signal) == ('stopped', signal.SIGTERM)


def study_of_two(folder, executor):
    return small_study(folder, {'type': 'TPE', 'trials': 3, 'pruner': 'ASHA'}, executor=executor)


def test_the_trials_are_those_of_a_serial_study(tmp_path):
    """On a Ray of one CPU that the executor starts itself, one trial at a time."""
    pytest.importorskip('ray', reason='needs ray: pip install ray')
    assert in_process(__file__, 'run_on_own_ray', str(tmp_path / 'ray')) == 0
    serial = study_of_two(tmp_path / 'serial', 'Serial').run()
    ray = study_of_two(tmp_path / 'ray', 'Serial').run()  # nothing is left to do
    assert outcome(ray) == outcome(serial)


def run_on_own_ray(folder):
    import ray

    report = study_of_two(folder, {'type': 'Ray', 'workers': 1}).run()
    if len(report.all_records) != 3 or not all(each.has_ended for each in report.all_records):
        raise SystemExit(3)
    if ray.is_initialized():
        raise SystemExit(4)


@needs_proc
def test_ctrl_c_ends_all_of_it(tmp_path):
    pytest.importorskip('ray', reason='needs ray: pip install ray')
    process = get_context('forkserver').Process(
        target=studies._call, args=(__file__, 'hang_on_own_ray', (str(tmp_path),))
    )
    process.start()
    trial = trial_process(tmp_path)
    session = family(process.pid)
    assert len(session) > 3  # Ray's own processes
    os.kill(process.pid, signal.SIGINT)
    process.join(60)
    assert process.exitcode == 1
    time.sleep(1)
    assert members(trial) == []
    assert [pid for pid in session if is_alive(pid)] == []


def hang_on_own_ray(folder):
    executor = RayExecutor(workers=1)
    with executor:
        executor.start(job(folder, 'hang'), lambda step, scores: False)
        while True:
            executor.wait(0.5)


def test_the_mailbox():
    async def talk():
        box = Mailbox()
        assert await box.take(0.01) == []
        asked = asyncio.ensure_future(box.ask('0.0', 1, {'loss': 2.0}))
        assert await box.take(5) == [('0.0', 1, {'loss': 2.0})]
        await box.answer('7.0', True)  # nobody asked
        await box.answer('0.0', True)
        assert await asked is True
        stopping = asyncio.ensure_future(box.stopping())
        await box.stop()
        assert await stopping

    asyncio.run(talk())


def test_no_room_for_a_trial(cluster):
    with pytest.raises(ValueError, match='no machine of the Ray cluster has room for a trial with cpus=1 and gpus=64'):
        RayExecutor(gpus=64).__enter__()
    with RayExecutor(cpus=0.5) as executor:
        assert executor.slots == 4


def test_a_dead_address_is_told_soon():
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    with pytest.raises(ConnectionError, match='there is no Ray cluster at address='):
        check_address(f'ray://127.0.0.1:{port}')
    with pytest.raises(ValueError, match="address must be such as 'host:6379'"):
        check_address('somewhere')


def test_without_ray_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, 'ray', None)
    with pytest.raises(ImportError, match='pip install ray'):
        import_ray()


@pytest.mark.parametrize(
    ('options', 'words'),
    [
        ({'address': 6379}, 'address must be a text'),
        ({'cpus': -1}, 'cpus must be a number of at least 0'),
        ({'gpus': '1'}, 'gpus must be a number'),
        ({'retries': -1}, 'retries'),
        ({'workers': 0}, 'workers'),
        ({'limit': 0}, 'limit must be a number of seconds above 0'),
    ],
)
def test_wrong_arguments(options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        RayExecutor(**options)
