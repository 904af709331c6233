"""The script that measures studies, in small; the whole one is `python benchmarks/search.py`."""

import pytest
from support import benchmark

SCRIPT = benchmark('search')


def test_costs(tmp_path):
    found = SCRIPT.costs(tmp_path, SCRIPT.ALGORITHMS['TPE with ASHA'], 12)
    assert len(found) == 12
    assert all(0 < cpu < 1000 for _, cpu in found)
    table = SCRIPT.table_of_costs(10).splitlines()
    assert [line.split(' | ')[0] for line in table[4:]] == [f'| {name}' for name in SCRIPT.ALGORITHMS]


@pytest.mark.thorough  # tests/search/test_study.py kills studies
def test_a_killed_study_ends_like_the_one_that_was_left_alone(tmp_path):
    told = SCRIPT.prove(tmp_path, kills=2, trials=6, longest=0.5)
    assert told['kills'] == 2
    assert sum(told['trials'].values()) == 6
