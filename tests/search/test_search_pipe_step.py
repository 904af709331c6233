import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from pipelines import small_pipeline  # noqa: E402


@pytest.fixture(scope='module')
def searched(tmp_path_factory):
    folder = tmp_path_factory.mktemp('searched')
    two = dict(search_algorithm=dict(type='NSGA2', trials=2))
    return folder, small_pipeline(folder, nas=two, fullytrain=None, benchmark=None).run()


def test_the_number_of_parameters_is_an_objective(searched):
    assert {each.performance['params'] for each in searched[1].all_records} == {49.0}
    assert searched[1].all_records[0].values == [searched[1].all_records[0].performance['error'], 49.0]


def test_a_misspelt_objective_is_refused_before_the_first_trial(tmp_path):
    with pytest.raises(KeyError, match="unknown score 'eror'; did you mean 'error'"):
        small_pipeline(tmp_path, nas=dict(objectives=dict(eror='min')))
    assert not (tmp_path / 'work').exists()
