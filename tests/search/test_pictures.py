"""The pictures of a search."""

import logging

import pytest

from runnerkit.search.algorithm import SearchAlgorithm
from runnerkit.search.optuna_algorithm import OptunaAlgorithm
from runnerkit.search.pictures import draw_front, draw_history, draw_importances, draw_search, importances
from runnerkit.search.record import Record
from runnerkit.search.space import Space

pytestmark = pytest.mark.usefixtures('real_pictures')

LOGGER = logging.getLogger('pictures')
OBJECTIVES = {'accuracy': 'max', 'params': 'min'}


def record(number, accuracy, params=10.0, status='completed'):
    scores = {'accuracy': accuracy, 'params': params}
    return Record('nas', number, objectives=OBJECTIVES, performance=scores, status=status)


RECORDS = [record(0, 0.5), record(1, 0.9, 20.0), record(2, 0.3, status='pruned'), record(3, 0.4, 15.0)]


@pytest.fixture
def axes(monkeypatch):
    """The axes of all figures that are saved."""
    from matplotlib.figure import Figure

    seen = []
    save = Figure.savefig

    def savefig(self, *args, **kwargs):
        seen.append(self.axes[0])
        return save(self, *args, **kwargs)

    monkeypatch.setattr(Figure, 'savefig', savefig)
    return seen


def lines(axis):
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axis.lines}


def test_the_history(tmp_path, axes):
    assert draw_history(RECORDS, tmp_path / 'history.png').exists()
    assert lines(axes[0]) == {
        'completed': ([0, 1, 3], [0.5, 0.9, 0.4]),
        'pruned': ([2], [0.3]),
        'best 0.9': ([0, 1, 3], [0.5, 0.9, 0.9]),
    }
    assert draw_history([], tmp_path / 'none.png') is None
    assert draw_history([Record('nas', 0, objectives=OBJECTIVES)], tmp_path / 'none.png') is None


def test_the_front(tmp_path, axes):
    assert draw_front(RECORDS, tmp_path / 'front.png').exists()
    assert lines(axes[0])['front'] == ([0.5, 0.9], [10.0, 20.0])
    assert axes[0].get_xlabel() == 'accuracy (max)'
    assert draw_front(RECORDS[2:3], tmp_path / 'none.png') is None


def test_the_importance(tmp_path, axes):
    algorithm = OptunaAlgorithm(Space({'a': dict(type='Float', low=0, high=1), 'b': [1, 2]}), {'x': 'min'}, trials=12)
    assert importances(algorithm, LOGGER) == {}  # there is no trial
    for number in range(12):
        value = algorithm.search().hps['a']
        algorithm.update(Record('nas', number, objectives={'x': 'min'}, performance={'x': value}, status='completed'))
    found = importances(algorithm, LOGGER)
    assert found['a'] > 0.5 > found['b']
    draw_importances(found, tmp_path / 'importance.png')
    assert [bar.get_width() for bar in axes[0].patches] == sorted(found.values())
    assert importances(SearchAlgorithm(None, {'x': 'min'}), LOGGER) == {}


def test_all_of_them(tmp_path, capsys):
    draw_search(RECORDS, tmp_path, None, LOGGER)
    assert {path.name for path in tmp_path.iterdir()} == {'history.png', 'front.png'}
    assert 'history.png' in capsys.readouterr().out
