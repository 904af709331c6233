"""The record of a run, from its files."""

import json
import math
import os
import pickle
import time

import pytest
import written_runs as made

from runnerkit.flow.report.record import MOST_WARNINGS, read_run
from runnerkit.hooks.predictions import PREDICTIONS, SAMPLES
from runnerkit.utils.lock import FolderLock, is_locked


def test_a_record_has_what_the_files_say(work_dir):
    run = read_run(work_dir)
    assert (run.name, run.outcome, run.seed) == ('run', 'completed', 0)
    assert (run.step, run.epoch, run.epoch_length) == (30, 3, 10)
    assert run.scores == {'acc': 0.75}
    assert (run.best.score, run.best.step, run.best.checkpoint) == ('acc', 20, 'best_acc_epoch_2.pth')
    assert run.curves['train', 'loss'][0] == (5, 0.2)
    assert ('val', 'lr') not in run.curves
    assert run.clock[-1] == (30, 15.0)
    assert run.time_spent == {'data': pytest.approx(3), 'step': pytest.approx(12), 'other': pytest.approx(45)}
    assert run.warnings == [('WARNING', 'the disk is nearly full\nand a second line', 2)]
    assert run.settings['optimizer.lr'] == 0.1
    assert {each['name'] for each in run.checkpoints} == {'epoch_3.pth', 'best_acc_epoch_2.pth'}


def test_a_truncated_last_line_and_foreign_lines_are_left_out(work_dir):
    log = work_dir / '20260101_100000.log.json'
    with open(log, 'a') as file:
        file.write('[1, 2]\nno JSON\n' + '[' * 100_000 + '\n{"mode": "train", "step": 35, "lo')
    assert read_run(work_dir).step == 30


def test_a_resumed_run_has_each_moment_once(tmp_path):
    made.write_log(tmp_path, made.lines_of(), text='')
    made.write_log(tmp_path, made.lines_of(4, first=3, loss=2.0), stamp='20260101_110000')
    run = read_run(tmp_path)
    steps = [step for step, _ in run.curves['train', 'loss']]
    assert steps == sorted(set(steps)) == list(range(5, 45, 5))
    assert run.resumed_at == [25]
    assert dict(run.curves['train', 'loss'])[25] == 2 / 25  # of the later start


def test_values_that_are_not_finite_and_dicts_of_values(tmp_path):
    values = {'lr': {'gen': 1, 'dis': 2}, 'loss': math.nan, 'ok': True}
    lines = [{'mode': 'train', 'epoch': 1, 'iter': 1, 'step': 1, **values}]
    run = read_run(made.write_log(tmp_path, lines, text=''))
    assert run.curves['train', 'lr gen'] == [(1, 1)]
    assert math.isnan(run.curves['train', 'loss'][0][1])
    assert ('train', 'ok') not in run.curves


@pytest.mark.parametrize(
    'end, outcome, reason',
    [
        ('Run stopped: SIGTERM', 'stopped', 'SIGTERM'),
        ("Run failed: ValueError('no')", 'failed', "ValueError('no')"),
        ('Run diverged', 'diverged', ''),
        ('Epoch [2] evaluated', 'killed', ''),
    ],
)
def test_outcomes_of_work_dirs_without_a_journal(tmp_path, end, outcome, reason):
    text = made.TEXT.replace('Run completed', end)
    (tmp_path / '.lock').write_text('process 1 on here, since long ago\n')  # as a kill leaves it
    run = read_run(made.write_log(tmp_path, made.lines_of(), text=text))
    assert (run.outcome, run.reason) == (outcome, reason)


@pytest.mark.parametrize(
    ('before', 'begin'),
    [('completed', 'runnerkit - INFO - Training Net'), ('interrupted', 'mmdet - INFO - Start running, host: a@b')],
)
def test_a_later_start_without_an_end_replaces_the_outcome(tmp_path, before, begin):
    made.write_log(tmp_path, made.lines_of(), text=made.TEXT.replace('Run completed', f'Run {before}'))
    made.write_log(tmp_path, [], stamp='20260102_100000', text=f'2026-01-02 10:00:00,000 - {begin}\n')
    assert read_run(tmp_path).outcome == 'running'  # without a lock or a journal, by its fresh log
    for path in tmp_path.glob('*.log*'):
        os.utime(path, (1, 1))
    assert read_run(tmp_path).outcome == 'unknown'


def test_a_run_is_running_while_its_process_holds_the_lock(work_dir):
    made.write_log(work_dir, made.lines_of(), text=made.TEXT.replace('Run completed', 'Saving'))
    lock = FolderLock(work_dir)
    try:
        assert read_run(work_dir).outcome == 'running'
        with pytest.raises(BlockingIOError):  # reading has not taken it
            FolderLock(work_dir)
    finally:
        lock.release()
    (work_dir / '.lock').write_text(f'process {os.getpid()} on here, since now\n')  # left behind by a kill
    assert not is_locked(work_dir / '.lock')
    assert read_run(work_dir).outcome == 'killed'


def test_a_run_on_another_host_is_running_while_its_log_grows(work_dir):
    (work_dir / 'run.json').write_text(json.dumps({'starts': [{'host': 'elsewhere', 'begin': 1.0}]}))
    assert read_run(work_dir).outcome == 'running'
    for path in work_dir.glob('*.log*'):
        os.utime(path, (1, 1))
    assert read_run(work_dir).outcome == 'unknown'


@pytest.mark.parametrize('content', ['', '[]', '{"starts": 3}', '{"starts": [1, {"outcome": 5}]}', '{"sta'])
def test_a_damaged_journal_is_no_harm(work_dir, content):
    (work_dir / 'run.json').write_text(content)
    assert read_run(work_dir).step == 30


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match='is no work dir of a run'):
        read_run(tmp_path)
    with pytest.raises(FileNotFoundError, match='^https://host/run is a URL, and runs are read from folders'):
        read_run('https://host/run')
    with pytest.raises(FileNotFoundError, match='no such folder'):
        read_run(tmp_path / 'nowhere')
    (tmp_path / 'epoch_1.pth').touch()
    with pytest.raises(FileNotFoundError, match='epoch_1.pth is a file: give the work dir of its run'):
        read_run(tmp_path / 'epoch_1.pth')


def test_nothing_is_unpickled_or_imported(work_dir, monkeypatch):
    monkeypatch.setattr(pickle, 'loads', None)
    (work_dir / 'code').mkdir()
    (work_dir / 'code' / 'trap.py').write_text('raise SystemExit')
    run = read_run(made.write_log(work_dir, made.lines_of(), config="a = __import__('os')\nb = dict(c=1)\n"))
    assert run.settings == {'a': "__import__('os')", 'b.c': 1}
    assert run.code == ['trap.py']


def test_pictures_of_another_folder_are_not_followed(work_dir):
    for picture in ('../secret.png', '/etc/passwd', 5, f'{SAMPLES}/../x.png'):
        (work_dir / PREDICTIONS).write_text(json.dumps({'samples': [3, {'picture': picture}]}))
        assert read_run(work_dir).predictions['samples'] == [{'picture': None}]
    (work_dir / PREDICTIONS).write_text('{"samples": 3}')
    assert read_run(work_dir).predictions is None


def timed_lines(now, pause=1.0):
    """Log lines with the time of each, the last one at ``now``."""
    lines = list(made.lines_of())
    return [{**line, 'timestamp': now - pause * (len(lines) - 1 - i)} for i, line in enumerate(lines)]


def test_a_run_in_python_without_a_text_log_is_soon_known_to_be_over(tmp_path):
    now = time.time()
    log = made.write_log(tmp_path, timed_lines(now), text='') / '20260101_100000.log.json'
    run = read_run(tmp_path)
    assert (run.outcome, run.began, run.ended) == ('running', now - 8, now)
    os.utime(log, (now - 70, now - 70))  # silent for longer than before: 60 s and five times the longest pause
    assert read_run(tmp_path).outcome == 'unknown'
    made.write_log(tmp_path, timed_lines(now - 70, pause=30.0), text='')
    os.utime(log, (now - 70, now - 70))
    assert read_run(tmp_path).outcome == 'running'


@pytest.mark.parametrize(
    'config, epochs, outcome',
    [
        ("runner = dict(type='EpochBasedRunner', max_epochs=3)", 3, 'completed'),
        ('total_epochs = 3', 3, 'completed'),
        ("runner = dict(type='IterBasedRunner', max_iters=30)", 3, 'completed'),
        ('total_epochs = 3', 2, 'running'),
    ],
)
def test_a_run_of_mmcv_is_over_at_the_end_that_its_config_sets(tmp_path, config, epochs, outcome):
    lines = [*made.lines_of(epochs)]
    assert read_run(made.write_log(tmp_path / 'run', lines, text='', config=config)).outcome == outcome
    made.write_log(tmp_path / 'run', lines[:-1], text='', config=config)  # its last evaluation is not over
    assert read_run(tmp_path / 'run').outcome == 'running'


def test_a_run_without_evaluations_is_over_with_its_last_checkpoint(tmp_path):
    lines = [line for line in made.lines_of() if line['mode'] == 'train']
    made.write_log(tmp_path, lines, text='', config='total_epochs = 3')
    assert read_run(tmp_path).outcome == 'running'
    (tmp_path / 'epoch_3.pth').touch()
    assert read_run(tmp_path).outcome == 'completed'


def test_the_journal_knows_times_in_any_zone_and_the_iterations_of_the_end(work_dir):
    start = {'begin': 1000.0, 'end': 1060.0, 'outcome': 'completed', 'iterations_at_end': 37}
    (work_dir / 'run.json').write_text(json.dumps({'starts': [start]}))
    run = read_run(work_dir)  # its text log is of 2026
    assert (run.began, run.ended, run.step, run.iterations) == (1000.0, 1060.0, 30, 37)


def test_a_clock_that_is_set_back(tmp_path):
    lines = [{**line, 'timestamp': 1000.0 - 9 * i} for i, line in enumerate(made.lines_of())]
    text = made.TEXT.replace('10:01:00,000', '09:00:00,000')
    run = read_run(made.write_log(tmp_path, lines, text=text))
    assert run.busy is None
    assert min(seconds for _, seconds in run.clock) >= 0
    assert run.time_spent == {'data': pytest.approx(3), 'step': pytest.approx(12)}


def test_warnings_are_counted_beyond_the_last_new_one(tmp_path):
    warning = '2026-01-01 10:00:00,000 - runnerkit - WARNING - {}\n'
    text = ''.join(warning.format(n) for n in (*range(MOST_WARNINGS + 50), *[0] * 9))
    found = read_run(made.write_log(tmp_path, [], text=text)).warnings
    assert len(found) == MOST_WARNINGS
    assert found[0] == ('WARNING', '0', 10)


def test_the_size_has_all_files_but_those_of_other_runs(work_dir):
    before = read_run(work_dir).bytes
    (work_dir / 'epoch_4.pth.shards' / 'deep').mkdir(parents=True)
    (work_dir / 'epoch_4.pth.shards' / 'deep' / 'a').write_bytes(bytes(1000))
    made.write_log(work_dir / 'inner', made.lines_of())
    assert read_run(work_dir).bytes == before + 1000
    assert before == sum(path.stat().st_size for path in work_dir.iterdir() if path.is_file())


def test_the_name_is_that_of_the_folder(work_dir, monkeypatch):
    monkeypatch.chdir(work_dir)
    assert read_run('.').name == read_run(f'../{work_dir.name}/').name == work_dir.name
    (work_dir / 'code').mkdir()
    monkeypatch.chdir(work_dir / 'code')
    assert read_run('..').name == work_dir.name
