"""The engine does what it did: every training of `golden_runs` leaves the trace that `make golden` once wrote.

A trace that changes is a change of behaviour. Where one is meant, `make golden` writes the files anew, and the commit
says which lines have changed, and why.
"""

import golden_runs
import pytest


@pytest.mark.parametrize('name', golden_runs.RUNS)
def test_the_trace_is_that_of_the_file(name, tmp_path):
    found = golden_runs.RUNS[name](tmp_path)
    assert found == (golden_runs.FOLDER / f'{name}.txt').read_text(encoding='utf-8').splitlines()


def test_every_file_has_its_training():
    assert {path.stem for path in golden_runs.FOLDER.iterdir()} == set(golden_runs.RUNS)
    assert len(golden_runs.RUNS) >= 40
