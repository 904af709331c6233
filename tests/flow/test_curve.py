"""The learning curve from a work dir's log."""

import json
import sys

import pytest

from runnerkit.flow.curve import curves, plot, read_log


def write(path, *lines):
    path.write_text('\n'.join(json.dumps(line) for line in lines) + '\n')


def test_each_moment_counts_once_as_it_was_done_last(tmp_path):
    write(
        tmp_path / '1.log.json',
        {'seed': 1},
        {'mode': 'train', 'epoch': 1, 'iter': 10, 'step': 10, 'loss': 2.0, 'lr': 0.1},
        {'mode': 'train', 'epoch': 2, 'iter': 10, 'step': 20, 'loss': 1.5},
    )
    write(
        tmp_path / '2.log.json',
        {'mode': 'train', 'epoch': 2, 'iter': 10, 'step': 20, 'loss': 1.0},
        {'mode': 'val', 'epoch': 2, 'iter': 10, 'step': 20, 'acc': 0.5},
    )
    assert curves(read_log(tmp_path)) == {'train loss': [(10, 2.0), (20, 1.0)], 'val acc': [(20, 0.5)]}


def test_the_picture(tmp_path):
    assert plot(tmp_path) is None
    write(
        tmp_path / '1.log.json',
        {'mode': 'train', 'epoch': 1, 'iter': 10, 'loss': 2.0},
        {'mode': 'val', 'epoch': 1, 'iter': 10, 'acc': 1.0},
    )
    path = plot(tmp_path)
    assert path == tmp_path / 'curve.png'
    assert path.read_bytes().startswith(b'\x89PNG')


def test_only_losses(tmp_path):
    write(tmp_path / '1.log.json', {'mode': 'train', 'epoch': 1, 'iter': 10, 'loss': 2.0})
    assert plot(tmp_path).stat().st_size > 1000


def test_without_matplotlib_one_line_says_so(tmp_path, monkeypatch, caplog):
    from runnerkit.flow import Context, Terminal

    write(tmp_path / '1.log.json', {'mode': 'train', 'epoch': 1, 'iter': 10, 'loss': 2.0})
    monkeypatch.setitem(sys.modules, 'matplotlib', None)
    with pytest.raises(ModuleNotFoundError):
        plot(tmp_path)
    with caplog.at_level('INFO', 'runnerkit'):
        Terminal().draw(Context(None, work_dir=tmp_path))
    assert "no learning curve is drawn: it needs matplotlib (pip install 'runnerkit[plot]')" in caplog.text


def test_a_step_that_goes_back_supersedes_what_follows_and_torn_lines_are_left_out(tmp_path):
    write(
        tmp_path / '1.log.json', *({'mode': 'train', 'epoch': 1, 'iter': n, 'step': n, 'loss': 1.0} for n in (3, 6, 9))
    )
    write(tmp_path / '2.log.json', *({'mode': 'train', 'epoch': 1, 'iter': n, 'step': n, 'loss': 2.0} for n in (4, 8)))
    with open(tmp_path / '2.log.json', 'a') as file:
        file.write('{"mode": "train", "epoch"')
    assert curves(read_log(tmp_path)) == {'train loss': [(3, 1.0), (4, 2.0), (8, 2.0)]}
