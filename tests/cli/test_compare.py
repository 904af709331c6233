"""``runnerkit compare``."""

import json

import written_runs as made

from runnerkit.cli.main import main


def test_scores_spread_and_differing_keys_are_shown(tmp_path, capsys):
    folders = [str(made.write_log(tmp_path / f'seed{i}', made.lines_of(loss=1 / i), seed=i)) for i in (1, 2)]
    assert main(['compare', *folders]) == 0
    table, spread, keys = capsys.readouterr().out.strip().split('\n\n')
    assert table.splitlines()[1].split()[:5] == ['seed1', 'completed', '-', '0.75', '3']
    assert spread == 'seed1, seed2 differ by their seed alone: acc 0.8125 ± 0.08839'
    assert keys.splitlines()[1].split() == ['seed', '1', '2']
    assert main(['compare', *folders, '--json']) == 0
    assert json.loads(capsys.readouterr().out)['differing'] == {'seed': [1, 2]}


def test_a_folder_without_a_run_is_a_usage_error(tmp_path, capsys):
    assert main(['compare', str(tmp_path)]) == 2
    assert 'is no work dir of a run' in capsys.readouterr().err


def test_names_do_not_control_the_terminal(tmp_path, capsys):
    evil = '\x1b]0;title\x07'
    lines = [{'mode': 'val', 'epoch': 1, 'iter': 1, 'step': 1, evil: 0.5}]
    folders = [str(made.write_log(tmp_path / f'{i}', lines, seed=i)) for i in (1, 2)]
    assert main(['compare', *folders]) == 0
    text = capsys.readouterr().out
    assert 'differ by their seed alone: \\x1b]0;title\\x07 0.5' in text
    assert evil not in text
