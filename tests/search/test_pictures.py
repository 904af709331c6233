"""The pictures of a search, which Optuna draws."""

import logging

import pytest

from runnerkit.search.algorithm import SearchAlgorithm
from runnerkit.search.optuna_algorithm import OptunaAlgorithm
from runnerkit.search.pictures import draw_search, study_of
from runnerkit.search.record import Record
from runnerkit.search.space import Space

pytestmark = pytest.mark.usefixtures('real_pictures')

LOGGER = logging.getLogger('pictures')
OBJECTIVES = {'accuracy': 'max', 'params': 'min'}


def record(number, accuracy, params=10.0, status='completed'):
    scores = {'accuracy': accuracy, 'params': params}
    return Record('nas', number, objectives=OBJECTIVES, performance=scores, status=status)


RECORDS = [record(0, 0.5), record(1, 0.9, 20.0), record(2, 0.3, status='pruned'), record(3, 0.4, 15.0)]


def files(folder):
    return {path.name for path in folder.iterdir()}


def test_two_objectives_of_any_algorithm(tmp_path, capsys):
    draw_search(RECORDS, tmp_path, SearchAlgorithm(None, OBJECTIVES), LOGGER)
    assert files(tmp_path) == {'history.png', 'front.png'}
    assert 'history.png' in capsys.readouterr().out
    study = study_of(RECORDS)
    assert [trial.number for trial in study.best_trials] == [0, 1]
    assert [direction.name for direction in study.directions] == ['MAXIMIZE', 'MINIMIZE']


def test_nothing_is_drawn_of_nothing(tmp_path):
    draw_search([], tmp_path, None, LOGGER)
    draw_search(RECORDS[2:3], tmp_path, None, LOGGER)
    assert files(tmp_path) == set()


def test_optunas_algorithms_know_which_values_have_mattered(tmp_path):
    from matplotlib import pyplot

    style = dict(pyplot.rcParams)
    algorithm = OptunaAlgorithm(Space({'a': dict(type='Float', low=0, high=1), 'b': [1, 2]}), {'x': 'min'}, trials=12)
    records = []
    for number in range(12):
        hps = algorithm.search().hps
        records.append(Record('nas', number, hps, None, {'x': 'min'}, {'x': hps['a']}, 'completed'))
        algorithm.update(records[-1])
    draw_search(records, tmp_path, algorithm, LOGGER)
    assert files(tmp_path) == {'history.png', 'importance.png'}
    assert dict(pyplot.rcParams) == style
    assert pyplot.get_fignums() == []
