"""Which process this is."""

from runnerkit.distributed import get_dist_info, is_distributed, master_only
from runnerkit.distributed.groups import ranks_in_words


def test_alone():
    assert get_dist_info() == (0, 1)
    assert not is_distributed()

    @master_only
    def double(x, *, plus=0):
        """Twice x."""
        return 2 * x + plus

    assert double(2, plus=1) == 5
    assert double.__doc__ == 'Twice x.'


def test_among_others(ranks):
    assert ranks['info'] == ((0, 2), (1, 2))
    assert ranks['is_distributed'] == (True, True)
    assert ranks['master_only'] == ('did it', None)


def test_ranks_in_words():
    assert ranks_in_words([3]) == 'rank 3'
    assert ranks_in_words([0, 2]) == 'ranks 0, 2'
    assert ranks_in_words(range(20)) == f'ranks {", ".join(map(str, range(16)))} … (20 in all)'
