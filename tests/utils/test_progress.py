"""Progress bars, character by character: MMCV 1.7.2 drew the same at the same times and widths."""

import io
import os

import pytest

from runnerkit.utils import progress
from runnerkit.utils.progress import ProgressBar


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The times that the clock shows, one after the other, and then 0; the first one is that of the start."""
    times = []
    monkeypatch.setattr(progress, 'perf_counter', lambda: times.pop(0) if times else 0.0)
    return times


def line(width=80, **options):
    os.environ['COLUMNS'] = str(width)
    file = io.StringIO()
    return file, ProgressBar(file=file, **options)


@pytest.fixture(autouse=True)
def columns(monkeypatch):
    monkeypatch.setenv('COLUMNS', '80')


def test_of_an_unknown_number(clock):
    clock += [0.0, 1.4, 2.6]
    file, bar = line()
    bar.update()
    bar.update(2)
    assert file.getvalue() == (
        'completed: 0, elapsed: 0scompleted: 1, elapsed: 1s, 0.7 tasks/scompleted: 3, elapsed: 3s, 1.2 tasks/s'
    )
    assert bar.completed == 3


@pytest.mark.parametrize(
    'width, drawn', [(200, '>>>>>' + ' ' * 45), (80, '>>>' + ' ' * 31), (60, '>' + ' ' * 13), (50, ' ' * 4), (20, '  ')]
)
def test_the_bar_fits_into_the_line(clock, width, drawn):
    clock += [0.0, 1.0]
    file, bar = line(width, task_num=10)
    assert bar.terminal_width == width
    bar.update()
    start, drawing = file.getvalue().split('\r')
    assert start == f'[{" " * 50}] 0/10, elapsed: 0s, ETA:'
    told = '1/10, 1.0 task/s, elapsed: 1s, ETA:     9s'
    assert drawing == f'[{drawn}] {told}'


def test_a_slow_one(clock):
    clock += [0.0, 2.5]
    file, bar = line(task_num=10, bar_width=10)
    bar.update(2)
    assert file.getvalue().endswith('\r[>>        ] 2/10, 0.8 task/s, elapsed: 3s, ETA:    10s')
    clock += [0.0, 3700.4, 5000.0]
    file, bar = line(task_num=1000, bar_width=20)
    bar.update()
    bar.update(499)
    assert file.getvalue().split('\r')[1:] == [
        '[                    ] 1/1000, 0.0 task/s, elapsed: 3700s, ETA: 3696700s',
        '[>>>>>>>>>>          ] 500/1000, 0.1 task/s, elapsed: 5000s, ETA:  5000s',
    ]


def test_started_later(clock):
    file, bar = line(task_num=2, start=False)
    assert file.getvalue() == ''
    assert not hasattr(bar, 'timer')
    bar.start()
    bar.update(2)
    assert file.getvalue().endswith('] 2/2, inf task/s, elapsed: 0s, ETA:     0s')
    for error in (ValueError, AssertionError):
        with pytest.raises(error, match='num_tasks must be at least 1, but got 0'):
            bar.update(0)
