"""Groups beside the default one, and what the ranks wait for in them."""

from datetime import timedelta

import torch

from runnerkit import distributed as d
from runnerkit.distributed.watch import is_lost


def test_alone_nobody_waits():
    thing = object()
    d.meet_patiently()
    assert d.broadcast_patiently(thing) is thing
    d.tell_failure(ValueError('nobody hears it'))
    assert not torch.distributed.is_initialized()


def test_the_group_of_the_cpu_is_the_default_one_where_that_is_gloo(ranks):
    assert ranks['cpu_group_of_gloo'] == (True, True)
    assert ranks['cpu_group'] == ((False, True),) * 2


def test_ranks_wait_longer_than_the_default_group_would_and_hear_signals(ranks):
    assert ranks['waited'] == (({'from': 0}, True),) * 2


def test_a_first_rank_that_fails_keeps_nobody_waiting(ranks):
    first, (told, next_one) = ranks['failed']
    assert told.startswith('ToldByFirstRank("rank 0 has failed: ValueError(\'a text that is long éé')
    assert 1000 < len(told) < 2100
    assert first == next_one == 'goes on'


def gone(rank):
    """What rank 1 hears at its first evaluation if rank 0 has left before."""
    d.groups.PATIENCE = timedelta(seconds=40)  # of a store that nobody answers, instead of a day
    torch.distributed.barrier()
    if rank == 0:
        torch.distributed.destroy_process_group()
        return None
    try:
        d.meet_patiently()
    except RuntimeError as error:
        return is_lost(error)


def test_a_rank_that_has_gone_is_noticed_at_once(on_ranks):
    assert on_ranks(__file__, 'gone') == [None, True]
