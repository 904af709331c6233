"""What a search prints at its end."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from pipelines import small_pipeline  # noqa: E402

from runnerkit.search.record import Record  # noqa: E402
from runnerkit.search.report import Report  # noqa: E402
from runnerkit.search.summary import summary  # noqa: E402

ERROR = {'error': 'min'}


def record(number, status, error=None, hps=None):
    scores = {} if error is None else {'error': error, 'loss': 2 * error}
    return Record('nas', number, hps or {}, None, ERROR, scores, status, start=100.0, end=110.0)


@pytest.fixture
def pipeline(tmp_path):
    pipeline = small_pipeline(tmp_path, fullytrain=None, benchmark=None)
    for each in (record(0, 'completed', 0.5), record(1, 'pruned', 0.7), record(2, 'completed', 0.25, {'lr[0]': 0.1})):
        pipeline.report.update(each)
    pipeline.report.update(record(3, 'running', 0.6))
    return pipeline


def test_the_summary(pipeline):
    assert summary(pipeline) == [
        'nas: 4 trials (2 completed, 1 pruned, 1 running); best:',
        '  2: error 0.25; lr[0]=0.1 (loss 0.5)',
        f'Report {pipeline.work_dir / "reports.json"}',
    ]


def test_the_summary_names_the_checkpoint_of_the_best(pipeline, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pipeline.report = Report()
    best = record(0, 'completed', 0.25)
    best.weights_file = str(tmp_path / 'nas' / 'best.pth')
    pipeline.report.update(best)
    assert summary(pipeline)[:-1] == [
        'nas: 1 trial (1 completed); best:',
        '  0: error 0.25 (loss 0.5)',
        '  checkpoint of 0: nas/best.pth',
    ]
