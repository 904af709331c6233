"""``runnerkit runs``."""

import json

import written_runs as made

from runnerkit.cli.main import main


def two_runs(folder):
    """A completed run, and a failed one with a NaN."""
    made.write_log(folder / 'good', made.lines_of())
    lines = [{'mode': 'val', 'epoch': 1, 'iter': 1, 'step': 1, 'acc': float('nan')}]
    made.write_log(folder / 'bad', lines, text=made.TEXT.replace('Run completed', 'Run failed: KeyError()'))


def test_the_table_has_a_row_for_each_run(tmp_path, capsys):
    two_runs(tmp_path)
    assert main(['runs', str(tmp_path), '--sort', 'iterations']) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ['run', 'outcome', 'epoch', 'iterations', 'best', 'ended', 'duration', 'size']
    assert [row.split()[:4] for row in rows] == [['bad', 'failed', '1', '1'], ['good', 'completed', '3', '30']]
    assert len({len(row) for row in (head, *rows)}) == 1


def test_json_is_one_valid_record_a_line(tmp_path, capsys):
    two_runs(tmp_path)
    assert main(['runs', str(tmp_path), '--json', '--outcome', 'failed']) == 0
    (record,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (record['name'], record['score.acc']) == ('bad', None)


def test_what_is_not_there(tmp_path, capsys):
    assert main(['runs', str(tmp_path)]) == 0
    assert capsys.readouterr().out == f'no runs below {tmp_path}\n'
    two_runs(tmp_path)
    assert main(['runs', str(tmp_path), '--sort', 'iteration']) == 2
    assert 'iterations' in capsys.readouterr().err
    assert main(['runs', str(tmp_path), '--outcome', 'stopped']) == 2
    assert 'completed, failed' in capsys.readouterr().err
    assert main(['runs', str(tmp_path / 'nowhere')]) == 2
    assert 'no such folder' in capsys.readouterr().err
