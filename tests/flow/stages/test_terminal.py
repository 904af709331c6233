"""After the training."""

from types import SimpleNamespace

import plans
import pytest

from runnerkit.config.origin import Finding
from runnerkit.flow import Context, Terminal, train
from runnerkit.flow.stages import terminal
from runnerkit.hooks.hook import Outcome, Score
from runnerkit.hooks.report import ReportHook

MESSAGES = {'hook_msgs': {'best_score': 0.98765, 'best_ckpt': 'best.pth', 'last_ckpt': 'last.pth'}}


def runner(meta, scores, outcome=Outcome('completed')):
    return SimpleNamespace(meta=meta, scores=scores, outcome=outcome)


def test_scores_and_checkpoints_are_printed_on_stdout(tmp_path, capsys):
    scores = {'accuracy': Score(0.98123, 660), 'slow': Score(3, 600), 'loss': Score(0.06, 660)}
    Terminal(None)(Context(None, work_dir=tmp_path, runner=runner(MESSAGES, scores)))
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        'Scores after 600 iterations: slow 3',
        'Scores after 660 iterations: accuracy 0.9812, loss 0.06',
        'Best score 0.9877, checkpoint best.pth',
        'Last checkpoint last.pth',
    ]
    assert err == ''


def test_other_ranks_and_failed_starts_say_nothing(tmp_path, caplog, capsys):
    with caplog.at_level('INFO', 'runnerkit'):
        Terminal(None)(Context(None, work_dir=tmp_path, rank=1, runner=runner(MESSAGES, {})))
        # A curve or a checkpoint there would be those of an earlier run.
        Terminal(None)(Context(None, work_dir=tmp_path, runner=runner(MESSAGES, {}, outcome=None)))
        unseen = Finding('warning', 'mine', '', 'unused', '')
        Terminal(None)(Context(None, work_dir=tmp_path, findings=[unseen], outcome=Outcome('failed')))
    assert caplog.text == capsys.readouterr().out == ''


def test_the_curve_marks_the_best_checkpoint(tmp_path, monkeypatch, capsys):
    drawn = []
    monkeypatch.setattr(terminal, 'plot', lambda *args: drawn.append(args))
    Terminal(None)(Context(None, work_dir=tmp_path, runner=runner(MESSAGES, {})))
    Terminal(None)(Context(None, work_dir=tmp_path, runner=runner({}, {})))
    assert drawn == [(tmp_path, 'best.pth', ''), (tmp_path, None, '')]


@pytest.mark.usefixtures('real_pictures')
def test_a_run_ends_with_a_report_unless_it_is_off(tmp_path, caplog):
    train(plans.CONFIG, work_dir=str(tmp_path / 'on'), stop_after=1)
    assert 'stopped' in (tmp_path / 'on' / 'report.html').read_text()
    train(plans.config({'report': False}), work_dir=str(tmp_path / 'off'), stop_after=1)
    assert (tmp_path / 'off' / 'run.json').is_file()
    assert not (tmp_path / 'off' / 'report.html').exists()


def test_trials_and_failures_have_no_report(tmp_path, monkeypatch, caplog):
    def fail(work_dirs):
        raise OSError('the disk is full')

    monkeypatch.setattr(terminal, 'write_runs', fail)
    (tmp_path / 'run.json').write_text('{}')
    trial = Context(None, work_dir=tmp_path, runner=runner({}, {}), hooks=[(ReportHook(lambda *_: False, ()), 'LOW')])
    Terminal(None)(trial)
    assert 'no report' not in caplog.text
    Terminal(None)(Context(None, work_dir=tmp_path, runner=runner({}, {})))
    assert 'no report is written: OSError: the disk is full' in caplog.text
