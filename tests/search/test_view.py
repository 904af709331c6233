"""What somebody sees of a pipeline."""

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parent))
from pipelines import small_pipeline  # noqa: E402

from runnerkit.search.record import Record  # noqa: E402
from runnerkit.search.report import Report  # noqa: E402
from runnerkit.search.view import View, counts, remaining  # noqa: E402
from runnerkit.utils import logging as our_logging  # noqa: E402

ERROR = {'error': 'min'}


def record(number, status, error=None, hps=None):
    scores = {} if error is None else {'error': error, 'loss': 2 * error}
    return Record('nas', number, hps or {}, None, ERROR, scores, status, start=100.0, end=110.0)


@pytest.fixture
def pipeline(tmp_path):
    pipeline = small_pipeline(tmp_path, fullytrain=None, benchmark=None)
    pipeline.current, pipeline.steps['nas'].total, pipeline.steps['nas'].slots = 'nas', 6, 2
    for each in (record(0, 'completed', 0.5), record(1, 'pruned', 0.7), record(2, 'completed', 0.25, {'lr[0]': 0.1})):
        pipeline.report.update(each)
    pipeline.report.update(record(3, 'running', 0.6))
    return pipeline


def shown(table):
    console = Console(file=io.StringIO(), width=200)
    console.print(table)
    return console.file.getvalue()


def test_the_table(pipeline):
    text = shown(View(pipeline).table())
    assert 'nas: 3 of 6 trials, 2 completed, 1 pruned, 1 running, about 15 s left' in text
    running, best = (line.split('│')[1:-1] for line in text.splitlines() if line.startswith('│'))
    assert [cell.strip() for cell in running] == ['3', 'running', '0', 'error 0.6, loss 1.2', '']
    assert [cell.strip() for cell in best] == ['2', 'best', '0', 'error 0.25, loss 0.5', 'lr[0]=0.1']
    pipeline.current = None
    assert 'trial' in shown(View(pipeline).table())


def test_the_summary(pipeline):
    assert View(pipeline).summary() == [
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
    assert View(pipeline).summary()[:-1] == [
        'nas: 1 trial (1 completed); best:',
        '  0: error 0.25 (loss 0.5)',
        '  checkpoint of 0: nas/best.pth',
    ]


def test_a_terminal_is_kept_up_to_date(pipeline, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, 'stderr', terminal)
    monkeypatch.setenv('TERM', 'xterm')
    monkeypatch.setenv('COLUMNS', '150')
    with View(pipeline):
        # What a trial in this process prints goes elsewhere; the table does not.
        monkeypatch.setattr(sys, 'stderr', io.StringIO())
        pipeline.report.update(record(3, 'completed', 0.125))
        pipeline.on_change(pipeline)
        monkeypatch.setattr(sys, 'stderr', terminal)
    assert '4 of 6 trials' in terminal.getvalue()
    assert our_logging.console().file is terminal  # and no longer pinned to it
    monkeypatch.setattr(sys, 'stderr', io.StringIO())
    assert our_logging.console().file is sys.stderr
    our_logging.console.cache_clear()


def test_in_a_pipe_there_is_no_table(pipeline, capsys):
    with View(pipeline):
        pipeline.on_change(pipeline)
    assert capsys.readouterr() == ('', '')


def test_figures():
    ended = [record(0, 'completed', 0.5), record(1, 'failed')]
    assert counts(ended) == ['1 completed', '1 failed']
    assert remaining(ended, 6, 2) == 20.0
    assert remaining([], 6, 2) is None
    assert remaining(ended, None, 2) is None
    assert remaining(ended, 2, 2) is None
