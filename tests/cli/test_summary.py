"""The tool that shows a model."""

from runnerkit.cli.main import main


def test_a_model_is_shown_and_nothing_is_kept(project, capsys, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(tmp_path_factory.mktemp('here'))
    before = sorted(path for path in project.iterdir() if path.name != '__pycache__')
    assert main(['summary', str(project / 'cfg.py'), '--device', 'cpu']) == 0
    out = capsys.readouterr().out
    assert 'parameters, ' in out.splitlines()[0]
    assert 'for each of the 4 samples' in out.splitlines()[0]
    assert sorted(path for path in project.iterdir() if path.name != '__pycache__') == before
    assert main(['summary', str(project / 'missing.py')]) == 2
