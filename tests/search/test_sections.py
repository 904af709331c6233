from pathlib import Path

import pytest

from runnerkit.search.sections import as_type, checked_algorithm, checked_objectives, local_folder


def test_the_algorithm_must_exist():
    checked_algorithm('TPE')
    checked_algorithm({'type': 'TPE', 'trials': 3})
    with pytest.raises(KeyError, match="no search algorithm 'NSGA-2'; did you mean 'NSGA2'"):
        checked_algorithm('NSGA-2')
    with pytest.raises(KeyError, match='PBTHpo is not built: population-based training'):
        checked_algorithm('PBTHpo')
    with pytest.raises(TypeError, match="with the key 'type'"):
        checked_algorithm({'trials': 3})


def test_a_name_stands_for_a_dict():
    assert as_type('Serial') == {'type': 'Serial'}
    given = {'type': 'Local', 'workers': 2}
    assert as_type(given) == given
    assert as_type(given) is not given


def test_objectives_are_copied():
    given = {'error': 'min'}
    found = checked_objectives(given)
    assert found == given
    assert found is not given
    with pytest.raises(ValueError, match="'error' must be 'max' or 'min', but got 'mn'; did you mean 'min'"):
        checked_objectives({'error': 'mn'})


def test_the_work_dir_is_a_folder_of_this_machine():
    assert local_folder('some/where') == Path.cwd() / 'some' / 'where'
    with pytest.raises(ValueError, match=r"a folder of this machine, but got 's3://bucket/study'"):
        local_folder('s3://bucket/study')
