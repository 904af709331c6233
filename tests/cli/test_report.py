"""``runnerkit report``."""

import pytest
import written_runs as made

from runnerkit.cli.main import main


def test_a_report_is_written_where_it_is_asked_for(tmp_path, capsys):
    folder = made.write_log(tmp_path / 'run', made.lines_of())
    assert main(['report', str(folder), '--out', str(tmp_path / 'page.html')]) == 0
    assert capsys.readouterr().out == f'Report {tmp_path / "page.html"}\n'
    assert (tmp_path / 'page.html').read_text().startswith('<!doctype html>')


def test_a_folder_without_a_run_is_a_usage_error(tmp_path, capsys):
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
