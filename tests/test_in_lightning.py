"""Two trainings here and the same in Lightning (benchmarks/in_lightning): ours take fewer lines, and learn as well.

Lightning is in this environment, or in the one of its own that ``make bench`` builds; else only lines are counted.
"""

import csv
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from runnerkit.cli.main import main

ROOT = Path(__file__).resolve().parent.parent

#: What is written for one training: the config, and what only it needs. The images' data set and network are plain
#: PyTorch in files of their own, and both sides import them.
OURS = {
    'wine': ['configs/tabular/wine.py', 'configs/tabular/table.py'],
    'onecycle': ['configs/mnist/onecycle.py'],
}
THEIRS = {name: f'benchmarks/in_lightning/{name}.py' for name in OURS}
MISSING = 'Lightning is not installed: make .venv/bench/lightning/.done'
LIGHTNING = Path(sys.prefix) / 'bench' / 'lightning' / 'bin' / 'python'


def lines(path):
    """The lines that are neither blank nor comments; ruff formats both sides alike."""
    return [line for line in (ROOT / path).read_text().splitlines() if line.strip() and line.strip()[0] != '#']


def characters(paths):
    """What is in these lines, indents aside."""
    return sum(len(line.strip()) for path in paths for line in lines(path))


def commands(name):
    """Our commands for one training, which stand in the comment of its config; Lightning's script has one."""
    return re.findall(r'^# +runnerkit (.*)', (ROOT / OURS[name][0]).read_text(), flags=re.MULTILINE)


def counts(name):
    """How many lines are written, commands included: ours and Lightning's."""
    return sum(len(lines(path)) for path in OURS[name]) + len(commands(name)), len(lines(THEIRS[name])) + 1


@pytest.mark.parametrize('name', OURS)
def test_ours_has_fewer_lines(name):
    ours, theirs = counts(name)
    assert ours < 0.75 * theirs
    page = (ROOT / 'docs/from_lightning.md').read_text()
    assert f'| `{THEIRS[name]}` | {ours} and {theirs} |' in page
    assert characters(OURS[name]) < 0.75 * characters([THEIRS[name]])  # nor are they longer


def python_with_lightning():
    if importlib.util.find_spec('lightning'):
        return sys.executable
    return str(LIGHTNING) if LIGHTNING.exists() else None


#: Each script, and the first one again, which then resumes; all in one process, since the import takes seconds.
RUN = """
import runpy, sys
for script in sys.argv[1:]:
    print('---', script, flush=True)
    runpy.run_path(script)
"""


@pytest.mark.skipif(python_with_lightning() is None, reason=MISSING)
def test_both_do_the_same(tmp_path, monkeypatch, capsys):
    theirs, ours = tmp_path / 'theirs', tmp_path / 'ours'
    for folder in (theirs, ours):
        folder.mkdir()
    for name, path in THEIRS.items():
        text = (ROOT / path).read_text()
        (theirs / f'{name}.py').write_text(text.replace('max_epochs=12', 'max_epochs=3'))
    environment = {**os.environ, 'PYTHONPATH': str(ROOT / 'configs/mnist'), 'OMP_NUM_THREADS': '1', 'COLUMNS': '200'}
    command = [python_with_lightning(), '-c', RUN, 'wine.py', 'onecycle.py', 'wine.py']
    done = subprocess.run(
        command, cwd=theirs, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout
    parts = done.stdout.split('--- ')[1:]
    assert ['Restored all states' in part for part in parts] == [False, False, True]

    monkeypatch.chdir(ours)
    (ours / 'configs').symlink_to(ROOT / 'configs')
    for name in ('wine', 'onecycle', 'wine'):
        for command in commands(name):
            words = command.split()
            if words[0] == 'train' and name == 'onecycle':
                words += ['--cfg-options', 'runner.max_epochs=3']
            assert main(words) == 0
    said = capsys.readouterr()
    assert said.err.count('resumed from') == 1

    scores = {
        'theirs': [float(score) for score in re.findall(r'test_accuracy\s*│\s*([\d.]+)', done.stdout)],
        'ours': [float(score) for score in re.findall(r'test accuracy: (.*)', said.out)],
    }
    for found in scores.values():
        assert len(found) == 3
        assert found[1] > 0.95  # 1,000 digits
        assert min(found[0], found[2]) > 0.85  # 48 wines
    assert abs(scores['ours'][1] - scores['theirs'][1]) < 0.02
    for name, agreement in (('wine', 0.85), ('onecycle', 0.95)):
        files = [folder / 'work_dirs' / name / 'predictions.csv' for folder in (ours, theirs)]
        tables = [list(csv.reader(file.open(newline=''))) for file in files]
        assert tables[0][0][:2] == tables[1][0][:2] == ['input', 'prediction']
        classes = [[int(row[1]) for row in table[1:]] for table in tables]
        assert len(classes[0]) == len(classes[1])
        assert np.mean(np.array(classes[0]) == classes[1]) > agreement
