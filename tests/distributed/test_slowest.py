"""The slowest rank; the calls are in `all_calls`."""

from runnerkit.distributed import reduce_and_find_slowest
from runnerkit.distributed.slowest import NAMES


def test_the_slowest_of_two_ranks(ranks):
    for sums, partial in ranks['slowest']:
        assert sums == {
            'a': (2.0, 2.0),
            'time': (12.0, 6.0),
            'time_max': (3.0, 1.0),
            'time_max_rank': (0.0, 1.0),
            'data_time': (3.0, 2.0),
            'data_time_max': (2.0, 1.0),
            'data_time_max_rank': (1.0, 1.0),
        }
        assert set(sums) == {'a', *NAMES}
        assert partial == set()


def test_a_rank_without_times(ranks):
    (first, partial), (second, its_partial) = ranks['slowest_of_some']
    assert first == {'time': (4.0, 2.0), 'time_max': (2.0, 1.0), 'time_max_rank': (0.0, 1.0)}
    assert second == first
    assert partial == its_partial == {'time'}


def test_alone_nobody_is_slow():
    assert reduce_and_find_slowest({'time': (1.0, 2.0)}) == ({'time': (1.0, 2.0)}, set())
