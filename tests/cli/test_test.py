"""The testing tool."""

import json

import pytest

from runnerkit.cli.test import main


def test_scores_of_a_file_or_of_the_best_in_a_work_dir(project, train, capsys):
    train()
    out = project / 'scores.json'
    best = next((project / 'run').glob('best_*'))
    printed = []
    for checkpoint in (project / 'run', best):
        assert main([str(project / 'cfg.py'), str(checkpoint), '--out', str(out)]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert 'test loss: ' in printed[0]
    assert 'test error: ' in printed[0]
    assert set(json.loads(out.read_text())) == {'loss', 'error'}
    assert main([str(project / 'cfg.py'), str(best), '--split', 'val']) == 0
    assert 'val error: ' in capsys.readouterr().out


@pytest.mark.parametrize(
    'arguments, code, text',
    [
        (['nowhere.py', 'x.pth'], 2, 'there is no config file nowhere.py'),
        (['CFG', 'nowhere.pth'], 1, 'there is no checkpoint nowhere.pth'),
        (['CFG', 'nowhere.pth', '--split', 'tset'], 1, "has no 'tset' section; it has"),
    ],
)
def test_wrong_input(project, capsys, arguments, code, text):
    assert main([str(project / 'cfg.py') if each == 'CFG' else each for each in arguments]) == code
    err = capsys.readouterr().err
    assert text in err
    assert 'Traceback' not in err
