"""``runnerkit runs``, ``compare``, ``report``."""

import json
import subprocess
import sys

import pytest
import written_runs as made

from runnerkit.cli.main import main
from runnerkit.search.record import Record
from runnerkit.search.report import Report


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


def test_scores_spread_and_differing_keys_are_shown(tmp_path, capsys):
    folders = [str(made.write_log(tmp_path / f'seed{i}', made.lines_of(loss=1 / i), seed=i)) for i in (1, 2)]
    assert main(['compare', *folders]) == 0
    table, spread, keys = capsys.readouterr().out.strip().split('\n\n')
    assert table.splitlines()[1].split()[:5] == ['seed1', 'completed', '0.75', '3', '30']
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


def test_a_report_is_written_where_it_is_asked_for(tmp_path, capsys):
    folder = made.write_log(tmp_path / 'run', made.lines_of())
    assert main(['report', str(folder), '--out', str(tmp_path / 'page.html')]) == 0
    assert capsys.readouterr().out == f'Report {tmp_path / "page.html"}\n'
    assert (tmp_path / 'page.html').read_text().startswith('<!doctype html>')


def test_a_report_of_a_folder_without_a_run_is_a_usage_error(tmp_path, capsys):
    assert main(['report', str(tmp_path)]) == 2
    assert 'is no work dir of a run: it has neither run.json nor a *.log.json' in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(['report'])


@pytest.mark.parametrize(
    'name, message',
    [
        ('page.txt', 'page.txt: a report is written as .html, .htm'),
        ('run/20260101_100000.log.json', 'a report is written as .html, .htm'),  # not over the log
        ('folder.html', 'folder.html is a folder: give a file in it'),
    ],
)
def test_a_report_goes_over_no_other_file(tmp_path, capsys, name, message):
    folder = made.write_log(tmp_path / 'run', made.lines_of())
    (tmp_path / 'folder.html').mkdir()
    assert main(['report', str(folder), '--out', str(tmp_path / name)]) == 2
    assert message in capsys.readouterr().err


def test_a_read_only_work_dir_needs_another_file(tmp_path, capsys, monkeypatch):
    folder = made.write_log(tmp_path / 'run', made.lines_of())
    monkeypatch.setattr('os.access', lambda path, mode: str(path) != str(folder))
    assert main(['report', str(folder)]) == 2
    assert f'--out {folder}/report.html: {folder} is not writable: give another path' in capsys.readouterr().err
    assert main(['report', str(folder), '--out', str(tmp_path / 'page.html')]) == 0


COMMANDS = {
    'runs': ('runs', '.'),
    'runs as JSON': ('runs', '.', '--json', '--sort', 'best_score', '--earlier'),
    'compare': ('compare', 'good', 'other'),
    'report of a run': ('report', 'good'),
    'report of several': ('report', 'good', 'other', 'bad', '--out', 'several.html'),
    'report of a study': ('report', 'study'),
}


def test_what_only_reads_does_not_wait_for_torch(tmp_path):
    """Forks of one process: none of its own would be more telling."""
    two_runs(tmp_path)
    made.write_records(tmp_path / 'good')
    made.write_records(made.write_log(tmp_path / 'other', made.lines_of(loss=2.0), seed=1))
    for name in ('good/epoch_3.pth', 'good/best_acc_epoch_2.pth', 'other/best_acc_epoch_3.pth', 'other/latest.pth'):
        (tmp_path / name).write_bytes(b'never read')
    trials = [
        Record('search', number, {'lr': rate}, objectives={'acc': 'max'}, performance={'acc': rate}, status='completed')
        for number, rate in enumerate((0.1, 0.2))
    ]
    (tmp_path / 'study').mkdir()
    Report(trials).save(tmp_path / 'study')
    made.write_log(tmp_path / 'study' / 'search' / 'trials' / '0000' / 'search_0000', made.lines_of())
    code = f"""import contextlib, io, os, sys
from runnerkit.cli.main import main
for name, words in {COMMANDS!r}.items():
    if not os.fork():
        with contextlib.redirect_stdout(io.StringIO()):
            ended = main(words)
        print(name, ended or 0, 'torch' in sys.modules, flush=True)
        os._exit(0)
    os.wait()
"""
    done = subprocess.run([sys.executable, '-c', code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == [f'{name} 0 False' for name in COMMANDS], done.stderr
