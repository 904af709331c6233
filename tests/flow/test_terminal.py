"""After the training."""

from types import SimpleNamespace

from runnerkit.flow import Context, Options, Terminal
from runnerkit.flow.terminal import shown


def test_the_best_and_the_last_checkpoint_are_named(tmp_path, caplog):
    messages = {'best_score': 0.98765, 'best_ckpt': 'best.pth', 'last_ckpt': 'last.pth'}
    context = Context(None, work_dir=tmp_path, runner=SimpleNamespace(meta={'hook_msgs': messages}))
    with caplog.at_level('INFO', 'runnerkit'):
        Terminal()(context)
    assert 'Best score 0.9877, checkpoint best.pth' in caplog.text
    assert 'Last checkpoint last.pth' in caplog.text


def test_other_ranks_and_failed_starts_say_nothing(tmp_path, caplog):
    with caplog.at_level('INFO', 'runnerkit'):
        Terminal()(
            Context(None, work_dir=tmp_path, rank=1, runner=SimpleNamespace(meta={'hook_msgs': {'last_ckpt': 'x'}}))
        )
        Terminal()(Context(None, work_dir=tmp_path))
    assert caplog.text == ''


def test_only_a_dry_runs_own_folder_is_deleted(tmp_path):
    mine, others = tmp_path / 'runnerkit-dry-run-x', tmp_path / 'results'
    for folder in (mine, others):
        folder.mkdir()
        Terminal()(Context(None, Options(dry_run=True), work_dir=folder))
    assert not mine.exists()
    assert others.exists()


def test_paths_are_shown_as_one_would_type_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shown(tmp_path / 'a' / 'b.pth') == 'a/b.pth'
    assert shown('a.pth') == 'a.pth'
    assert shown('/elsewhere/a.pth') == '/elsewhere/a.pth'
