"""The tool that shows a model."""

import pytest

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


@pytest.mark.parametrize('command', ['summary', 'find-lr'])
def test_several_processes_are_refused(command, project, monkeypatch, capsys):
    monkeypatch.setenv('WORLD_SIZE', '2')
    assert main([command, str(project / 'cfg.py')]) == 2
    assert f'runnerkit {command} works in one process, but torchrun has started 2' in capsys.readouterr().err
    monkeypatch.setenv('WORLD_SIZE', '1')
    assert main([command, str(project / 'missing.py')]) == 2
    assert 'missing.py' in capsys.readouterr().err
