"""Trials in processes: crashes, hangs, kills, devices, and nobody left behind."""

import os
import signal
import time
from pathlib import Path

import pytest
from odd_trials import job, members, run
from studies import outcome, small_study

from runnerkit.search.executors import LocalExecutor
from runnerkit.search.executors.local import tail
from runnerkit.search.job import Job
from runnerkit.utils.env import is_alive

pytestmark = pytest.mark.usefixtures('warm')  # tests/tools/test_search.py starts trials as users do


def test_however_a_trial_ends_the_others_do_not_notice(tmp_path):
    whats = ['well', 'crash', 'kill', 'raise']
    found = run(LocalExecutor(4), *(job(tmp_path, what, number) for number, what in enumerate(whats)))
    assert found[0].status == 'completed'
    assert found[0].step == 3
    assert found[0].scores['loss'] > 0
    for number, words in ((1, 'exit code 7'), (2, 'killed by SIGKILL'), (3, 'this is odd')):
        assert found[number].status == 'failed'
        assert words in found[number].message
    assert 'output.log' in found[1].message


def test_reports_are_answered_and_pruning_is_obeyed(tmp_path):
    said = []

    def report(step, scores):
        said.append((step, sorted(scores)))
        return step == 2

    (result,) = run(LocalExecutor(1), job(tmp_path, 'well'), report=report).values()
    assert result.status == 'pruned'
    assert said == [(1, ['loss']), (2, ['loss'])]


@pytest.mark.skipif(not Path('/proc/self/stat').exists(), reason='needs /proc')
def test_no_process_stays_behind(tmp_path):
    executor = LocalExecutor(2)
    with executor:
        executor.start(job(tmp_path, 'child', 0), lambda step, scores: False)
        executor.start(job(tmp_path, 'hang', 1), lambda step, scores: False)
        groups = [each.process.pid for each in executor._running]
        ((ended, result),) = executor.wait(120)
        assert (ended.number, result.status) == (0, 'failed')
        assert 'exit code 3' in result.message
        assert members(groups[0]) == []
        while not members(groups[1]):  # a fork may not lead its group yet
            time.sleep(0.01)
    assert members(groups[1]) == []


def test_the_process_ends_when_the_study_is_killed(tmp_path):
    marker = tmp_path / 'pid'
    study = os.fork()
    if study == 0:
        try:
            hang_in_study(tmp_path, marker)
        finally:
            os._exit(1)
    while not (tmp_path / 'hangs').exists():
        time.sleep(0.05)
    os.kill(study, signal.SIGKILL)
    os.waitpid(study, 0)
    pid = int(marker.read_text())
    for _ in range(600):
        if not is_alive(pid):
            return
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    pytest.fail('the worker has outlived its study')


def hang_in_study(folder, marker):
    executor = LocalExecutor(1)
    executor.start(job(folder, 'hang'), lambda step, scores: False)
    marker.write_text(str(executor._running[0].process.pid))
    while True:
        executor.wait(0.5)


def stopped(executor, *jobs, when):
    """Start jobs, stop them when ``when()`` says so, and return how they have ended."""
    reports, ended = [], []
    with executor:
        for each in jobs:
            executor.start(each, lambda step, scores: reports.append(step) or False)
        while not when(reports):
            assert not executor.wait(0.05)
        executor.stop()
        while executor.running:
            ended += executor.wait(0.5)
    return {each.job.number: each.result for each in ended}


def test_stopped_trials_save_and_go_on(tmp_path):
    long = Job(**{**vars(job(tmp_path, 'well')), 'overrides': {'model.what': 'well', 'runner.max_epochs': 2000}})
    (result,) = stopped(LocalExecutor(1), long, when=lambda reports: len(reports) >= 2).values()
    assert (result.status, result.signal) == ('stopped', signal.SIGTERM)
    assert result.step >= 2
    steps = []
    again = Job(**{**vars(long), 'again': True})
    run(LocalExecutor(1), again, report=lambda step, scores: steps.append(step) or len(steps) == 2)
    assert steps == [result.step, result.step + 1]


def test_trials_that_have_hardly_begun_are_stopped(tmp_path):
    (result,) = stopped(LocalExecutor(1), job(tmp_path, 'hang'), when=lambda reports: True).values()
    assert result.status == 'stopped'
    assert 'killed by SIGTERM' in result.message


def test_a_trial_that_does_not_stop_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr('runnerkit.search.executors.local._GRACE', 1.0)
    hangs = tmp_path / 'hangs'
    (result,) = stopped(LocalExecutor(1), job(tmp_path, 'hang'), when=lambda reports: hangs.exists()).values()
    assert (result.status, result.message) == ('stopped', 'it has not ended within 1 s after SIGTERM')


RESULT = '{"result": {"status": "completed", "scores": {"loss": 0.5}}}'


def says(folder, monkeypatch, *commands, number=0):
    """Let the process of a trial do ``commands`` of a shell; the socket of the study is its file 9."""
    script = folder / 'worker'
    script.write_text('#!/bin/bash\neval "exec 9>&$3"\n' + '\n'.join(commands) + '\n')
    script.chmod(0o755)
    monkeypatch.setattr('sys.executable', str(script))
    return Job(number, 'config.py', {}, f'{folder}/0/run', 5, {'loss': 'min'})


#: What a trial says, and what the study hears of it.
SAID = [
    (['printf \'{"step": 1\' >&9', 'sleep 600'], 'it took longer than 0.5 s, the limit'),
    (['eval "exec $3>&- 9>&-"', 'sleep 600'], 'it took longer than 0.5 s, the limit'),
    (['echo "This is no JSON" >&9', 'sleep 600'], 'something else has written to the socket of its study'),
    (["echo '[1]' >&9", 'sleep 600'], 'something else has written to the socket of its study'),
    (['echo \'{"result": {"state": 1}}\' >&9', 'sleep 600'], 'something else has written to the socket'),
    (['printf "%02000d" 0 >&9', 'sleep 600'], 'a line of more than 1000 bytes'),
    (['printf \'{"step": 1\' >&9', 'exit 5'], 'exit code 5'),
]


def test_whatever_a_trial_says_the_study_hears_the_rest(tmp_path, monkeypatch):
    """All trials with one limit run at the same time."""
    monkeypatch.setattr('runnerkit.search.worker._LONGEST', 1000)
    monkeypatch.setattr('runnerkit.search.executors.local._LEAVES', 0.05)
    for limit in (0.5, 60):
        cases = [(commands, words) for commands, words in SAID if ('limit' in words) == (limit == 0.5)]
        ended = []
        with LocalExecutor(len(cases), limit=limit) as executor:
            for number, (commands, _) in enumerate(cases):
                folder = tmp_path / f'{limit}_{number}'
                folder.mkdir()
                executor.start(says(folder, monkeypatch, *commands, number=number), lambda step, scores: False)
            while executor.running:
                ended += executor.wait(0.5)
        assert len(ended) == len(cases)
        for each in ended:
            assert each.result.status == 'failed'
            assert cases[each.job.number][1] in each.result.message


def test_a_study_hears_a_signal_beside_half_a_line(tmp_path, monkeypatch):
    long = says(tmp_path, monkeypatch, 'printf \'{"step": 1\' >&9', f'touch {tmp_path}/said', 'exec sleep 600')
    (result,) = stopped(LocalExecutor(1), long, when=lambda reports: (tmp_path / 'said').exists()).values()
    assert result.status == 'stopped'


def test_lines_may_come_in_pieces(tmp_path, monkeypatch):
    said = []
    commands = ['printf \'{"step": 1, "sc\' >&9', 'sleep 0.1', 'printf \'ores": {"loss": 0.\' >&9', 'sleep 0.1']
    commands += ["echo '5}}' >&9", 'read -r answer <&9', f"echo '{RESULT}' >&9"]
    job = says(tmp_path, monkeypatch, *commands)
    (result,) = run(LocalExecutor(1), job, report=lambda *each: said.append(each) or False).values()
    assert said == [(1, {'loss': 0.5})]
    assert (result.status, result.scores) == ('completed', {'loss': 0.5})


@pytest.mark.parametrize(
    ('command', 'blame'),
    [
        ('kill -KILL $$', False),
        ('echo "OSError: [Errno 24] Too many open files"; exit 1', True),
        ('kill -SEGV $$', False),
    ],
)
def test_what_is_to_blame_for_a_crash(command, blame, tmp_path, monkeypatch):
    (result,) = run(LocalExecutor(1), says(tmp_path, monkeypatch, command)).values()
    assert (result.status, result.is_of_machine) == ('failed', blame)


def test_the_end_of_a_long_output_is_told(tmp_path):
    output = Path(job(tmp_path, 'well').work_dir).parent / 'output.log'
    output.parent.mkdir()
    output.write_text('first\n' + 'é' * 5000 + ' last\n')
    found = tail(job(tmp_path, 'well'))
    assert found.endswith('é last')
    assert len(found) < 1000


def test_a_slot_sees_its_device_and_its_threads():
    executor = LocalExecutor(2, devices=[3, 5])
    environment = executor._environment(Job(0, '', {}, '', 0, {}, threads=2), 1)
    assert environment['CUDA_VISIBLE_DEVICES'] == '5'
    assert environment['OMP_NUM_THREADS'] == '2'


def test_the_trials_are_those_of_a_serial_study(tmp_path):
    serial = small_study(tmp_path / 'serial', {'type': 'RandomSearch', 'trials': 2, 'pruner': None}).run()
    local = small_study(
        tmp_path / 'local',
        {'type': 'RandomSearch', 'trials': 2, 'pruner': None},
        executor={'type': 'Local', 'workers': 1},
    ).run()
    assert outcome(local) == outcome(serial)


@pytest.mark.parametrize(
    ('options', 'words'),
    [
        ({'workers': 0}, 'workers must be'),
        ({'workers': 2, 'devices': [0]}, 'one GPU for each of the 2 workers'),
        ({'limit': 0}, 'limit must be a number of seconds above 0'),
    ],
)
def test_wrong_arguments(options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        LocalExecutor(**options)
