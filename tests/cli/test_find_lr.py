"""The tool that looks for a learning rate."""

import pytest

from runnerkit.cli.main import main


def test_a_rate_is_found_and_nothing_is_kept(project, capsys, monkeypatch, tmp_path_factory):
    here = tmp_path_factory.mktemp('here')
    monkeypatch.chdir(here)
    before = sorted(path for path in project.iterdir() if path.name != '__pycache__')
    words = ['find-lr', str(project / 'cfg.py'), '--device', 'cpu', '--iters', '12', '--to', '1']
    assert main(words) == 0
    assert 'Try optimizer.lr=' in capsys.readouterr().out
    assert list(here.iterdir()) == []
    assert sorted(path for path in project.iterdir() if path.name != '__pycache__') == before


@pytest.mark.parametrize(
    'wrong, words',
    [
        (['--from', '1', '--to', '0.1'], '--from 1 must be below --to 0.1\n'),
        (['--from', '-1'], 'a number above 0'),
        (['--iters', '2'], '--iters must be at least 3, but got 2'),
    ],
)
def test_wrong_usage(wrong, words, project, capsys):
    try:
        code = main(['find-lr', str(project / 'cfg.py'), *wrong])
    except SystemExit as left:
        code = left.code
    assert code == 2
    assert words in capsys.readouterr().err
