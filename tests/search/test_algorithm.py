"""The bases of users' own algorithms and codecs. tests/search/test_study.py runs one."""

import pytest

from runnerkit.search.algorithm import (
    CODECS,
    SEARCH_ALGORITHMS,
    Codec,
    Proposal,
    SearchAlgorithm,
    as_type,
    checked_objectives,
    derived_seed,
)


def test_a_method_that_must_be_a_property():
    with pytest.raises(TypeError, match='Climb.is_completed must be a property: write @property above it'):

        class Climb(SearchAlgorithm):
            def is_completed(self):
                return True


def test_what_a_subclass_must_override():
    algorithm = SearchAlgorithm(None, {'accuracy': 'max'})
    for call, words in (
        (algorithm.search, 'must override search'),
        (lambda: algorithm.is_completed, 'must override is_completed'),
        (lambda: Codec().encode({}), 'must override encode'),
        (lambda: Codec().decode([]), 'must override decode'),
    ):
        with pytest.raises(NotImplementedError, match=words):
            call()
    assert algorithm.report(0, 1, 0.5) is False
    assert algorithm.update(None) is None


def test_its_random_numbers_follow_from_the_seed():
    draws = [SearchAlgorithm(None, {'a': 'max'}, seed).rng.random() for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]


def test_a_proposal():
    assert Proposal() == Proposal({}, None, None)


def test_names_of_algorithms():
    import runnerkit.search.optuna_algorithm  # noqa: F401  # registers ours

    for name in (
        'TPE',
        'RandomSearch',
        'GridSearch',
        'GP',
        'CMAES',
        'NSGA2',
        'NSGA3',
        'AshaHpo',
        'HyperBand',
        'BohbHpo',
    ):
        assert name in SEARCH_ALGORITHMS
    assert len(CODECS) == 0 or 'PruneCodec' in CODECS


def test_seeds_of_trials_differ_and_stay():
    seeds = [derived_seed(seed, number) for seed in range(3) for number in range(300)]
    assert len(set(seeds)) == 900
    assert all(0 <= each < 2**31 for each in seeds)
    assert derived_seed(0, 0) == seeds[0]


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
