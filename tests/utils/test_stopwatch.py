"""Where time goes: every moment counts once."""

from threading import Thread

import pytest
from support import Ticks

from runnerkit.utils.stopwatch import WALL, Stopwatch, TimedPart, time_table


@pytest.fixture
def clock():
    return Ticks()


def shown(watch):
    return {part.name: (part.count, part.seconds) for part in watch.parts()}


def test_every_moment_is_that_of_the_innermost_part(clock):
    watch = Stopwatch(clock)
    watch.start('rest')
    clock.time = 1
    outer = watch.enter('outer')
    clock.time = 3
    inner = watch.enter('inner')
    assert watch.current == 'inner'
    clock.time = 7
    watch.leave(inner)
    clock.time = 15
    watch.leave(outer)
    clock.time = 31
    watch.stop()
    clock.time = 1000
    assert shown(watch) == {'rest': (1, 17), 'outer': (1, 10), 'inner': (1, 4)}


def test_the_part_that_others_lie_in_changes(clock):
    watch = Stopwatch(clock)
    watch.start('data')
    for _ in range(3):
        watch.change('data')  # it goes on
        clock.time += 2
        watch.change('engine')
        clock.time += 1
        watch.change('data')
    watch.stop()
    assert shown(watch) == {'data': (4, 6), 'engine': (3, 3)}


def test_a_part_in_itself_is_still_the_same(clock):
    watch = Stopwatch(clock)
    watch.start('rest')
    outer = watch.enter('update')
    inner = watch.enter('update')
    clock.time = 5
    watch.leave(inner)
    watch.leave(outer)
    watch.leave(watch.enter('update'))
    assert shown(watch)['update'] == (2, 5)


def test_what_was_not_ended_ends_with_the_part_around_it(clock):
    watch = Stopwatch(clock)
    watch.start('rest')
    outer = watch.enter('outer')
    forgotten = watch.enter('forgotten')
    clock.time = 2
    watch.leave(outer)
    clock.time = 5
    watch.leave(forgotten)
    watch.stop()
    assert shown(watch) == {'rest': (1, 3), 'outer': (1, 0), 'forgotten': (1, 2)}


def test_between_a_stop_and_a_start_nothing_counts(clock):
    watch = Stopwatch(clock)
    assert watch.enter('before') is None
    watch.start('rest')
    before = watch.enter('a')
    watch.stop()
    clock.time = 10
    watch.change('nothing')
    watch.leave(before)
    watch.leave(watch.enter('b'))
    assert watch.current is None
    watch.start('rest')
    clock.time = 11
    watch.stop()
    assert shown(watch) == {'rest': (2, 1), 'a': (1, 0)}


def test_other_threads_are_not_heard(clock):
    watch = Stopwatch(clock)
    watch.start('rest')

    def other():
        watch.leave(watch.enter('other'))
        watch.change('other')
        watch.leave(0)

    thread = Thread(target=other)
    thread.start()
    thread.join()
    assert watch.current == 'rest'
    assert 'other' not in shown(watch)


def test_readings_do_not_pile_up(clock):
    watch = Stopwatch(clock)
    watch.start('rest')
    for _ in range(20_000):
        clock.time += 1
        watch.leave(watch.enter('a'))
    assert clock.asked > 30_000, 'most were counted meanwhile'
    watch.stop()
    assert shown(watch) == {'rest': (1, 20_000), 'a': (20_000, 0)}


def test_the_wall_clock_goes_forward():
    first = WALL.now()
    assert WALL.seconds(first, WALL.now()) >= 0


@pytest.mark.parametrize('sort_by, order', [('total', 'bca'), ('count', 'acb'), ('name', 'abc')])
def test_the_rows_of_a_table_add_up_to_its_last(sort_by, order):
    lines = time_table(
        [TimedPart('a', 9, 0.1), TimedPart('b', 2, 0.3), TimedPart('c', 4, 0.2)], 2, sort_by
    ).splitlines()
    assert ''.join(line[0] for line in lines[1:4]) == order
    rows = {name: tuple(numbers) for name, *numbers in (line.split() for line in [*lines[1:4], lines[5]])}
    assert rows == {
        'a': ('9', '100.00', '50.000', '16.7%'),
        'b': ('2', '300.00', '150.000', '50.0%'),
        'c': ('4', '200.00', '100.000', '33.3%'),
        'whole': ('2', '600.00', '300.000', '100.0%'),
    }


def test_a_table_of_no_time_at_all():
    assert time_table([TimedPart('a', 1, 0.0)], 1).splitlines()[-1].split() == ['whole', '1', '0.00', '0.000', '0.0%']
