"""``runnerkit report``."""

import pytest
import work_dirs as made

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
