"""Predictions of all ranks, in the order of the samples."""

import pytest

from runnerkit.distributed import collect_results, collect_results_cpu, collect_results_gpu
from runnerkit.distributed.collectives import in_order


def test_alone():
    assert collect_results([1, 2, 3], 2) == [1, 2]
    assert collect_results_gpu([1, 2], 5) == [1, 2]
    assert collect_results_cpu([1, 2, 3], 3) == [1, 2, 3]
    assert collect_results([], 0) == []


def test_alone_through_files(tmp_path):
    assert collect_results_cpu([1, 2, 3], 2, tmpdir=str(tmp_path / 'parts')) == [1, 2]
    assert not (tmp_path / 'parts').exists()


@pytest.mark.parametrize('way', ['collect', 'collect_gpu', 'collect_cpu', 'collect_files', 'collect_other_backend'])
def test_rank_0_gets_all_in_order_also_from_shares_of_different_length(ranks, way):
    assert ranks[way] == ([0, 1, 2, 3, 4, 5, 6], None)


def test_what_samplers_have_added_is_dropped(ranks):
    assert ranks['collect_cut'] == ([0, 1, 2, 3, 4], None)


def test_a_share_may_be_empty(ranks):
    assert ranks['collect_nothing'] == (['only'], None)


def test_no_files_are_left(ranks):
    assert ranks['parts_removed'] == (True, True)
    assert ranks['left_over'] == ([], [])


def test_in_order():
    assert in_order([[0, 3, 6], [1, 4], [2, 5]], 10) == [0, 1, 2, 3, 4, 5, 6]
    assert in_order([[None, None], [None, None]], 3) == [None, None, None]
