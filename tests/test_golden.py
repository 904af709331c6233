"""The engine does what it did: every training of `golden_runs` leaves the trace that `make golden` once wrote.

A trace that changes is a change of behaviour. Where one is meant, `make golden` writes the files anew, and the commit
says which lines have changed, and why.
"""

import golden_runs
import pytest
from golden_runs import FOLDER, ON_RANKS, RUNS


def lines_of(name):
    return (FOLDER / f'{name}.txt').read_text(encoding='utf-8').splitlines()


@pytest.mark.parametrize('name', RUNS)
def test_the_trace_is_that_of_the_file(name, tmp_path):
    assert RUNS[name](tmp_path) == lines_of(name)


@pytest.mark.parametrize('name', ON_RANKS)
def test_the_trace_of_two_ranks_is_that_of_the_file(name, on_ranks, tmp_path):
    assert golden_runs.on_both(name, tmp_path, on_ranks) == lines_of(name)


def test_every_file_has_its_training():
    assert {path.stem for path in FOLDER.iterdir()} == {*RUNS, *ON_RANKS}
    assert len(RUNS) >= 40
