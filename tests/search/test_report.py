"""Reports: the best, the front, what lies in files, and what a search prints at its end."""

import csv
import json

import pytest

from runnerkit.search.record import COMPLETED, FAILED, PRUNED, Record
from runnerkit.search.report import Report, failures, summary


def records():
    found = []
    for number, (status, scores) in enumerate(
        [
            (COMPLETED, {'accuracy': 0.8, 'params': 100.0}),
            (COMPLETED, {'accuracy': 0.9, 'params': 300.0}),
            (PRUNED, {'accuracy': 0.99, 'params': 1.0}),
            (FAILED, {}),
            (COMPLETED, {'accuracy': 0.7, 'params': 200.0}),
        ]
    ):
        objectives = {'accuracy': 'max', 'params': 'min'}
        hps = {'lr': 0.1} if number else {'lr': 0.2, 'width': 8}
        found.append(Record('nas', number, hps, objectives=objectives, performance=scores, status=status))
    return found


def test_the_front_and_the_best():
    report = Report(records())
    assert [each.number for each in report.pareto_front('nas')] == [1, 0]
    assert [each.number for each in report.pareto_front(nums=1)] == [1]
    assert [each.number for each in report.pareto_front(records=records()[:1])] == [0]
    assert report.best().number == 1
    assert report.pareto_front('fullytrain') == []
    assert report.best('fullytrain') is None
    assert Report().pareto_front() == []


def test_the_choice_of_one_objective_is_the_best_so_many():
    report = Report(records())
    assert [each.number for each in report.choice('nas', 5)] == [1, 0]  # of two objectives: the front
    for record in report.all_records:
        record.objectives = {'params': 'min'}
    report.get('nas', 4).performance['params'] = 100.0
    assert [each.number for each in report.pareto_front('nas')] == [0, 4]  # equally good
    assert [each.number for each in report.choice('nas')] == [0]
    assert [each.number for each in report.choice('nas', 2)] == [0, 4]
    assert [each.number for each in report.choice('nas', 9)] == [0, 4, 1]
    assert report.choice('fullytrain', 2) == []


def test_records_by_step_and_number():
    report = Report(records())
    changed = Record('nas', 1, status=FAILED)
    report.update(changed)
    report.update(Record('fullytrain', 1))
    assert report.get('nas', 1) is changed
    assert len(report.all_records) == 6
    assert len(report.of('nas')) == 5
    with pytest.raises(KeyError, match="no trial 7 of the step 'nas'"):
        report.get('nas', 7)


def test_its_files(tmp_path):
    report = Report([*records(), Record('nas', 5)])
    report.save(tmp_path)
    saved = json.loads((tmp_path / 'reports.json').read_text())
    assert [each['number'] for each in saved] == [0, 1, 2, 3, 4, 5]
    rows = list(csv.DictReader((tmp_path / 'output.csv').open()))
    assert [row['number'] for row in rows] == ['0', '1', '2', '3', '4']  # without the one that runs
    assert rows[0]['width'] == '8'
    assert rows[1]['width'] == ''
    assert rows[1]['accuracy'] == '0.9'
    assert rows[3]['status'] == 'failed'


def test_files_are_kept_up_to_date_at_little_cost(tmp_path, monkeypatch):
    clock, took = [100.0], [1.0]
    monkeypatch.setattr('runnerkit.search.report.time.monotonic', lambda: clock[0])
    report = Report()
    saved = []
    monkeypatch.setattr(report, 'save', lambda *args: (saved.append(args), clock.__setitem__(0, clock[0] + took[0])))
    report.keep(tmp_path, 'nas')
    report.keep(tmp_path, 'nas')
    assert len(saved) == 1
    report.keep(tmp_path / 'other')
    assert len(saved) == 2
    clock[0] += 18.5
    report.keep(tmp_path, 'nas')
    assert len(saved) == 2
    clock[0] += 0.5
    report.keep(tmp_path, 'nas')
    assert saved[-1] == (tmp_path, 'nas')
    assert len(saved) == 3


ERROR = {'error': 'min'}


def ended(number, status, error=None, hps=None):
    scores = {} if error is None else {'error': error, 'loss': 2 * error}
    return Record('nas', number, hps or {}, None, ERROR, scores, status, start=100.0, end=110.0)


def test_the_summary(tmp_path):
    best = ended(2, 'completed', 0.25, {'lr[0]': 0.1})
    report = Report([ended(0, 'completed', 0.5), ended(1, 'pruned', 0.7), best, ended(3, 'running', 0.6)])
    assert summary(report, ['nas', 'fullytrain'], tmp_path) == [
        'nas: 4 trials (2 completed, 1 pruned, 1 running); best:',
        '  2: error 0.25; lr[0]=0.1 (loss 0.5)',
        f'Report {tmp_path / "reports.json"}',
    ]


def test_the_summary_names_the_checkpoint_of_the_best(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    best = ended(0, 'completed', 0.25)
    best.weights_file = str(tmp_path / 'nas' / 'best.pth')
    assert summary(Report([best]), ['nas'], tmp_path)[:-1] == [
        'nas: 1 trial (1 completed); best:',
        '  0: error 0.25 (loss 0.5)',
        '  checkpoint of 0: nas/best.pth',
    ]


def test_failed_trials_are_named():
    records = [Record('nas', number, status='failed') for number in range(7)] + [Record('train', 0, status='failed')]
    assert failures(records) == 'nas 0, 1, 2, 3, 4 … (7 in all); train 0'
    assert failures([Record('nas', 0, status='completed')]) == ''
