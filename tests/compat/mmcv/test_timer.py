"""The stopwatch, by its order of events rather than by the clock."""

import pytest

from runnerkit.compat.mmcv.timer import Timer, TimerError, check_time
from runnerkit.utils import timer as module


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is told."""

    class Clock:
        now = 100.0

        def __call__(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(module, 'perf_counter', clock)
    return clock


def test_since_start_and_since_last_check(clock):
    timer = Timer()
    assert timer.is_running
    clock.now += 2
    assert timer.since_start() == 2
    clock.now += 3
    assert timer.since_last_check() == 3
    assert timer.since_last_check() == 0
    clock.now += 1
    assert timer.since_start() == 6
    timer.start()
    clock.now += 1
    assert timer.since_last_check() == 1
    assert timer.since_start() == 7


def test_one_that_does_not_run_knows_no_time():
    timer = Timer(start=False)
    assert not timer.is_running
    for ask in (timer.since_start, timer.since_last_check):
        with pytest.raises(TimerError, match='timer is not running'):
            ask()


def test_the_error_keeps_its_message():
    assert (str(TimerError('stopped')), TimerError('stopped').message) == ('stopped', 'stopped')


def test_a_block_says_how_long_it_took(clock, capsys):
    with Timer() as timer:
        clock.now += 1.25
    with Timer(print_tmpl='took {:.1f} s'):
        clock.now += 2
    assert capsys.readouterr().out == '1.250\ntook 2.0 s\n'
    assert not timer.is_running


def test_check_time_by_name(clock):
    assert check_time('test_timer a') == 0
    clock.now += 4
    assert check_time('test_timer b') == 0
    assert check_time('test_timer a') == 4
    assert check_time('test_timer a') == 0
