"""The lines of a log, and moving those aside that a resumed run writes again."""

import json
import os
from pathlib import Path

import pytest

from runnerkit.log_files import ENDING, files_of_run, parsed_line, set_aside, step_of


def line(step, mode='train', **more):
    return json.dumps({'mode': mode, 'step': step, **more}) + '\n'


def write(folder, name, *lines):
    (folder / name).write_text(''.join(lines))


def steps(path):
    return [step_of(parsed_line(each)) for each in path.read_bytes().splitlines()]


def test_lines_beyond_are_moved_and_nothing_is_lost(tmp_path):
    meta = json.dumps({'seed': 1}) + '\n'
    write(tmp_path, '1.log.json', meta, line(2), line(4), line(6))
    write(tmp_path, '2.log.json', meta, line(6), line(8))
    write(tmp_path, 'notes.json', line(9))
    assert [path.name for path in set_aside(tmp_path, 4, None)] == ['1.log.json', '2.log.json']
    assert (tmp_path / '1.log.json').read_text() == meta + line(2) + line(4)
    assert (tmp_path / '2.log.json').read_text() == meta
    assert (tmp_path / f'1.log.json{ENDING}').read_text() == line(6)
    assert (tmp_path / f'2.log.json{ENDING}').read_text() == line(6) + line(8)
    assert (tmp_path / 'notes.json').read_text() == line(9)
    assert set_aside(tmp_path, 4, None) == []
    assert len(list(tmp_path.iterdir())) == 5


def test_they_are_on_the_disk_before_the_log_loses_them(tmp_path, monkeypatch):
    flushed, real = [], os.fsync

    def fsync(descriptor):
        path = os.readlink(f'/proc/self/fd/{descriptor}')
        if path.endswith(ENDING):
            flushed.append((steps(Path(path)), steps(tmp_path / '1.log.json')))
        real(descriptor)

    monkeypatch.setattr(os, 'fsync', fsync)
    write(tmp_path, '1.log.json', line(4), line(6))
    set_aside(tmp_path, 4, None)
    assert flushed == [([6], [4, 6])]


@pytest.mark.parametrize('known, kept', [(None, 3), (0, 1), (1, 2), (2, 3), (5, 3)])
def test_of_lines_about_the_moment_itself_those_stay_that_were_there(tmp_path, known, kept):
    write(tmp_path, '1.log.json', line(2), line(4), line(4, 'val'))
    set_aside(tmp_path, 4, known)
    assert len(steps(tmp_path / '1.log.json')) == kept


def test_a_run_that_begins_again_keeps_nothing_but_meta(tmp_path):
    write(tmp_path, '1.log.json', '{"seed": 1}\n', line(1), line(0, 'val'))
    set_aside(tmp_path)
    assert (tmp_path / '1.log.json').read_text() == '{"seed": 1}\n'


def test_a_line_that_is_nested_too_deeply_is_moved_like_a_torn_one(tmp_path):
    deep = '{"step": 2, "mode": "train", "x": ' + '[' * 100_000 + ']' * 100_000 + '}\n'
    write(tmp_path, '1.log.json', line(2), deep, line(4))
    set_aside(tmp_path, 4, None)
    assert (tmp_path / '1.log.json').read_text() == line(2) + line(4)
    assert (tmp_path / f'1.log.json{ENDING}').read_text() == deep


def test_lines_that_say_no_step_stay(tmp_path):
    old = '{"mode": "train", "epoch": 3, "iter": 50, "loss": 1.0}\n'  # as MMCV writes them
    write(tmp_path, '1.log.json', old)
    assert set_aside(tmp_path, 1, 0) == []


def test_parsing():
    assert parsed_line(b'{"a": 1}\n') == {'a': 1}
    assert parsed_line('[1]') is parsed_line('{"a"') is None
    assert parsed_line('{"a": ' * 100_000) is None
    assert step_of({'step': 3}) is step_of({'mode': 'train'}) is None


def test_the_files_of_a_run_with_some_endings(tmp_path):
    for name in ('1.log', 'b.py', 'code/a.py', 'epoch_1.pth'):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('')
    assert files_of_run(tmp_path, ('.log', '.py')) == ['1.log', 'b.py', 'code/a.py']
