"""After the training."""

from types import SimpleNamespace

from runnerkit.config.findings import Finding
from runnerkit.flow import Context, Options, Terminal, terminal
from runnerkit.hooks.hook import Outcome, Score

MESSAGES = {'hook_msgs': {'best_score': 0.98765, 'best_ckpt': 'best.pth', 'last_ckpt': 'last.pth'}}


def runner(meta, scores, outcome=Outcome('completed')):
    return SimpleNamespace(meta=meta, scores=scores, outcome=outcome)


def test_scores_and_checkpoints_are_printed_on_stdout(tmp_path, capsys):
    scores = {'accuracy': Score(0.98123, 660), 'slow': Score(3, 600), 'loss': Score(0.06, 660)}
    Terminal()(Context(None, work_dir=tmp_path, runner=runner(MESSAGES, scores)))
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
        Terminal()(Context(None, work_dir=tmp_path, rank=1, runner=runner(MESSAGES, {})))
        # A curve or a checkpoint there would be those of an earlier run.
        Terminal()(Context(None, work_dir=tmp_path, runner=runner(MESSAGES, {}, outcome=None)))
        unseen = Finding('warning', 'mine', '', 'nobody reads it', '')
        Terminal()(Context(None, work_dir=tmp_path, findings=[unseen], outcome=Outcome('failed')))
    assert caplog.text == capsys.readouterr().out == ''


def test_only_a_dry_runs_own_folder_is_deleted(tmp_path):
    mine, others = tmp_path / 'runnerkit-dry-run-x', tmp_path / 'results'
    for folder in (mine, others):
        folder.mkdir()
        Terminal()(Context(None, Options(dry_run=True), work_dir=folder))
    assert not mine.exists()
    assert others.exists()


def test_the_curve_marks_the_best_checkpoint(tmp_path, monkeypatch, capsys):
    drawn = []
    monkeypatch.setattr(terminal, 'plot', lambda *args: drawn.append(args))
    Terminal()(Context(None, work_dir=tmp_path, runner=runner(MESSAGES, {})))
    Terminal()(Context(None, work_dir=tmp_path, runner=runner({}, {})))
    assert drawn == [(tmp_path, 'best.pth'), (tmp_path, None)]
