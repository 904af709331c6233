"""Each wrong input of the table is answered by name, with its place, and with the right exit code."""

import os
import pickle
import re
import shlex

import pytest
import torch
from wrong_inputs import FILES, GOOD, SEARCH, TABLES

from runnerkit.cli.main import main
from runnerkit.config import Config
from runnerkit.search import Space
from runnerkit.utils.exceptions import one_line

PLACE = re.compile(r'\.(?:py|yaml|json):\d')


class Code:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return os.getcwd, ()


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """A folder with the good config, what `FILES` has, and checkpoints, good and broken."""
    folder = tmp_path_factory.mktemp('wrong')
    for name, content in {'good.py': GOOD, 'search.py': SEARCH, **FILES}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    flags = ['--work-dir', str(folder / 'trained'), '--cfg-options', 'runner.max_epochs=1']
    assert main(['train', str(folder / 'good.py'), *flags]) == 0
    good = (folder / 'trained/latest.pth').read_bytes()
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 0xFF
    for name, content in {'good': good, 'truncated': good[: len(good) // 2], 'flipped': bytes(flipped)}.items():
        (folder / f'{name}.pth').write_bytes(content)
    for name, content in {
        'other': torch.nn.Linear(2, 2).state_dict(),
        'list': [1],
        'number': {'state_dict': 3},
        'nothing': {},
    }.items():
        torch.save(content, folder / f'{name}.pth')
    with (folder / 'code.pth').open('wb') as file:
        pickle.dump({'state_dict': Code()}, file)
    return folder


@pytest.fixture
def ask(folder, monkeypatch, capsys):
    """Run a command line in that folder: its exit code, and all it said."""
    monkeypatch.chdir(folder)

    def run(words):
        try:
            code = main(words)
        except SystemExit as ended:
            code = ended.code
        said = capsys.readouterr()
        if code:
            last = said.err.rstrip().splitlines()[-1]
            assert re.match(r'(?:runnerkit [\w-]+: )?error: |- |    ', last), f'this is no line to act on: {last}'
        first = re.search(r'File "(.*)", line', said.err)
        assert first is None or 'runnerkit/cli' not in first[1], 'the traceback begins above the code of the user'
        return code, said.out + said.err

    return run


def check(row, code, said, place=''):
    """Whether one part of the answer (a finding, a line of the log, the error) has all that the row names."""
    words = row.answer.split(' … ')
    needed = [word for word in words if word not in ('<nowhere>', '<traceback>')]
    if place and '<nowhere>' not in words and not any(PLACE.search(word) for word in words):
        needed.append(place)
    answer = said if row.code == 0 else re.split(r'(?:^|\n|: )error: ', said)[-1]
    parts = re.split(r'\n(?=- |\d{4}-)', answer)
    assert any(all(word in part for word in needed) for part in parts), f'{needed} are not named together:\n{answer}'
    assert code == row.code, answer
    assert ('Traceback' in said) == ('<traceback>' in words), said


def name(row):
    return row.written.splitlines()[-1] if row.written else 'nothing'


@pytest.mark.parametrize('row', TABLES['CONFIGS'], ids=name)
def test_wrong_configs(row, folder, ask):
    (folder / 'wrong.py').write_text(f"_base_ = 'good.py'\n{row.written}\n")
    check(row, *ask(['train', 'wrong.py', '--dry-run']), place='wrong.py:2')


@pytest.mark.parametrize('row', TABLES['RUNS'], ids=name)
def test_wrong_runs(row, folder, ask):
    (folder / 'wrong.py').write_text(f"_base_ = 'good.py'\n{row.written}\n")
    check(row, *ask(['train', 'wrong.py']), place='wrong.py:2')


@pytest.mark.parametrize('row', TABLES['COMMANDS'], ids=name)
def test_wrong_commands(row, ask):
    check(row, *ask(shlex.split(row.written)))


@pytest.mark.parametrize('row', TABLES['SPACES'], ids=name)
def test_wrong_spaces(row, folder):
    (folder / 'wrong.py').write_text(f"_base_ = 'good.py'\n{row.written}\n")
    cfg = Config.fromfile(folder / 'wrong.py')
    with pytest.raises((KeyError, TypeError, ValueError)) as caught:
        Space.of(cfg.search_space).check_config(cfg)
    check(row, row.code, one_line(caught.value), place='wrong.py:2')


@pytest.mark.parametrize('row', TABLES['SEARCHES'], ids=name)
def test_wrong_searches(row, folder, ask):
    (folder / 'wrong.py').write_text(f"_base_ = 'search.py'\n{row.written}\n")
    check(row, *ask(['search', 'wrong.py']), place='wrong.py:2')


def test_of_the_good_config_nothing_is_said(ask):
    """So that every answer is about what is wrong in its row."""
    code, said = ask(['train', 'good.py', '--dry-run'])
    assert code == 0
    assert not re.search('WARNING|ERROR|Before the first batch', said)
