"""Each change in `mutants.txt` can be made: its line is there, once, and so is the test that finds it.

`run_mutants.py` makes them and runs the tests.
"""

import subprocess
import sys

import pytest
from run_mutants import ROOT, entries

ROOMS = ('runner', 'hooks', 'data', 'checkpoint', 'optim')


def test_each_entry_has_its_line_and_its_test():
    found = list(entries())
    assert len({name for name, *_ in found}) == len(found)
    assert sum(file.split('/')[1] in ROOMS for _, _, file, *_ in found) >= 200
    for name, behaviour, file, old, new, test in found:
        assert behaviour, name
        assert old != new, name
        assert (ROOT / file).read_text(encoding='utf-8').count(old) == 1, f'{name}: {file} has not once {old!r}'
        path, function = test.split('[')[0].split('::')
        assert f'def {function}(' in (ROOT / path).read_text(encoding='utf-8'), f'{name}: {test}'


CHANGES = """\
K	Kept	runnerkit/optim/schedules.py	start + (end - start) * factor	start	TEST
L	Lost	runnerkit/optim/schedules.py	#: The kinds of warm-up.	#: Those of warm-up.	TEST
"""


@pytest.mark.thorough  # `make mutants` runs the same with the whole list
def test_a_change_that_no_test_finds_is_listed_and_nothing_stays_behind(tmp_path):
    changes, test = tmp_path / 'mutants.txt', 'tests/optim/test_schedules.py::test_cyclic'
    changes.write_text(CHANGES.replace('TEST', test), encoding='utf-8')
    text = (ROOT / 'runnerkit' / 'optim' / 'schedules.py').read_bytes()
    run = subprocess.run(
        [sys.executable, ROOT / 'tests' / 'run_mutants.py', '--list', changes], capture_output=True, text=True
    )
    assert run.returncode == 1, run.stdout + run.stderr
    *_, killed, survived, count, survivors = run.stdout.splitlines()
    assert killed.startswith('K')
    assert killed.endswith('killed')
    assert survived.endswith('SURVIVED: Lost')
    assert count.startswith('1 of 2 are killed')
    assert survivors == 'survivors: L'
    assert (ROOT / 'runnerkit' / 'optim' / 'schedules.py').read_bytes() == text
