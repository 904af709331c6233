"""Optuna's samplers and pruners by name; what they draw depends on the study's seed and the trial's number alone."""

import warnings

import pytest

from runnerkit.search.algorithm import SEARCH_ALGORITHMS
from runnerkit.search.optuna_algorithm import (
    DECLINED,
    NAMES,
    OptunaAlgorithm,
    checked_algorithm,
    made_algorithm,
    make_pruner,
    opened_storage,
)
from runnerkit.search.parameters import Float
from runnerkit.search.record import COMPLETED, FAILED, PRUNED, Record
from runnerkit.search.space import Space, combinations_of

optuna = pytest.importorskip('optuna')


def two(**more):
    """A space of a float and a choice."""
    return Space({'lr': Float(1e-4, 1e-1, log=True), 'width': [8, 16, 32]}, **more)


def make(name='TPE', space=None, storage=None, objectives=None, **options):
    config = {'type': name, 'space': space or two(), 'objectives': objectives or {'accuracy': 'max'}, **options}
    return SEARCH_ALGORITHMS.build({'storage': storage, 'trials': 6, **config})


def told(number, value, status=COMPLETED, objectives=None):
    objectives = objectives or {'accuracy': 'max'}
    scores = dict.fromkeys(objectives, value)
    return Record('search', number, objectives=objectives, performance=scores, status=status)


def score(proposal):
    return -abs(proposal.hps['lr'] - 0.01)


def complete(algorithm, first=0):
    """Propose and tell until the algorithm has enough; what it has proposed."""
    proposals, number = [], first
    while not algorithm.is_completed:
        proposal = algorithm.search()
        proposals.append(proposal.hps)
        algorithm.update(told(number, score(proposal), objectives=algorithm.objectives))
        number += 1
    return proposals


NEEDS = {'GP': 'scipy', 'BayesSearch': 'scipy', 'CMAES': 'cmaes', 'QMC': 'scipy'}


@pytest.mark.parametrize('name', NAMES)
def test_every_name_proposes_what_its_seed_says(name):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    runs = [complete(make(name, seed=seed, **({'points': 2} if name == 'GridSearch' else {}))) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert (runs[0] == runs[2]) == (name == 'GridSearch')
    assert len(runs[0]) == 6


@pytest.mark.parametrize('after', [0, 3])
def test_a_grid_has_each_allowed_configuration_once(after, tmp_path):
    space = two(forbidden=[{'lr': 1e-4, 'width': 8}])
    expected = [values for _, values in combinations_of(space, 2)]
    assert len(expected) == 5
    storage = str(tmp_path / 'journal')
    begun = complete(make('GridSearch', space, storage=storage, points=2, trials=after)) if after else []
    again = make('GridSearch', space, storage=storage, points=2, trials=None)
    assert begun + complete(again, after) == expected


def test_killed_while_it_draws_it_draws_the_same(tmp_path):
    whole = complete(make('RandomSearch', seed=4))

    class Killed(Exception):
        pass

    class Cut:
        """Dies between its two values, in the third trial."""

        draws = 0

        def draw(self, suggest):
            self.draws += 1
            lr = suggest.suggest_float('lr', 1e-4, 1e-1, log=True)
            if self.draws == 3:
                raise Killed
            return {'lr': lr, 'width': suggest.suggest_categorical('width', [8, 16, 32])}

    storage = str(tmp_path / 'journal')
    with pytest.raises(Killed):
        complete(make('RandomSearch', Cut(), storage=storage, seed=4))
    again = make('RandomSearch', storage=storage, seed=4)
    assert again.restore([told(0, 0.0), told(1, 0.0)]) is None
    assert complete(again, 2) == whole[2:]


def test_killed_before_the_record_was_written_the_proposal_is_given_again(tmp_path):
    storage = str(tmp_path / 'journal')
    proposal = make(storage=storage).search()
    assert make(storage=storage).restore([]) == proposal


def test_killed_before_optuna_was_told(tmp_path):
    storage = str(tmp_path / 'journal')
    first = make(storage=storage, trials=1)
    first.search()
    second = make(storage=storage)
    second.restore([told(0, 0.25)])
    assert [trial.value for trial in second.study.get_trials()] == [0.25]


def test_pruners_see_the_reports():
    algorithm = make('RandomSearch', trials=4, pruner={'type': 'ASHA', 'min_resource': 1, 'reduction_factor': 2})
    for number, value in enumerate((0.9, 0.1)):
        algorithm.search()
        prune = algorithm.report(number, 1, value)
        assert prune == (value == 0.1)
        assert algorithm.report(number, 1, value) == prune  # asked again, as after a kill
        algorithm.update(told(number, value, PRUNED if prune else COMPLETED))
    states = [trial.state.name for trial in algorithm.study.get_trials()]
    assert states == ['COMPLETE', 'PRUNED']


def test_a_pruner_wraps_another_by_its_name():
    pruner = {'type': 'Patient', 'wrapped_pruner': {'type': 'Threshold', 'upper': 1.0}, 'patience': 0}
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        algorithm = make('RandomSearch', trials=1, pruner=pruner)
    algorithm.search()
    assert [algorithm.report(0, step, value) for step, value in ((1, 4.0), (2, 5.0), (3, 3.0))] == [False, False, True]


def test_failed_trials_are_told():
    algorithm = make(trials=1)
    algorithm.search()
    algorithm.update(told(0, 0.0, FAILED))
    assert algorithm.study.get_trials()[0].state.name == 'FAIL'
    algorithm.update(told(7, 0.0))  # of another one: nothing happens


def test_refused_proposals_are_bounded():
    rare = two(forbidden=[{'width': 8}, {'width': 16}])
    rare.forbidden.append({'width': 32})
    with pytest.raises(
        ValueError, match='5 proposals in a row were refused, the last one because the space forbids width='
    ):
        make(space=rare, attempts=5).search()
    reasons = iter(['too big', 'too big'])
    algorithm = make(why_not=lambda proposal: next(reasons, None))
    algorithm.search()
    assert [trial.state.name for trial in algorithm.study.get_trials()] == ['FAIL', 'FAIL', 'RUNNING']
    assert algorithm.study.get_trials()[0].user_attrs == {'rejected': 'too big'}


def test_several_objectives():
    objectives = {'accuracy': 'max', 'params': 'min'}
    algorithm = make('NSGA2', objectives=objectives, trials=3)
    complete(algorithm)
    assert [direction.name for direction in algorithm.study.directions] == ['MAXIMIZE', 'MINIMIZE']
    assert algorithm.report(0, 1, 0.5) is False


def test_storages(tmp_path):
    assert opened_storage(None)[0] is None
    (tmp_path / 'journal.lock').write_text('')
    opened_storage(str(tmp_path / 'journal'))
    assert not (tmp_path / 'journal.lock').exists()


def test_wrong_names_and_arguments():
    for call, error, words in (
        (lambda: make_pruner('Medain', optuna), KeyError, 'Median'),
        (lambda: make_pruner(3, optuna), TypeError, "a name such as 'ASHA'"),
        (lambda: make_pruner({'type': 'ASHA', 'eta': 3}, optuna), TypeError, 'eta'),
        (lambda: OptunaAlgorithm(two(), {'a': 'max'}, sampler='TPESamplr'), KeyError, 'TPESampler'),
        (lambda: OptunaAlgorithm(two(), {'a': 'max'}, candidates=3), TypeError, 'candidates'),
        (lambda: made_algorithm(dict(type='TPE', trails=3), two(), {'a': 'max'}, 0), TypeError, "mean 'trials'"),
        (
            lambda: made_algorithm(dict(type='TPE', storage='x'), two(), {'a': 'max'}, 0),
            KeyError,
            'storage is the stud',
        ),
    ):
        with pytest.raises(error, match=words):
            call()
    assert all(reason for reason in DECLINED.values())
    assert not set(DECLINED) & set(NAMES)


def test_the_algorithm_must_exist():
    checked_algorithm('TPE')
    checked_algorithm({'type': 'TPE', 'trials': 3})
    with pytest.raises(KeyError, match="no search algorithm 'NSGA-2'; did you mean 'NSGA2'"):
        checked_algorithm('NSGA-2')
    with pytest.raises(KeyError, match='PBTHpo is not built: population-based training'):
        checked_algorithm('PBTHpo')
    with pytest.raises(TypeError, match="with the key 'type'"):
        checked_algorithm({'trials': 3})
