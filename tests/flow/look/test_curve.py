"""The learning curve from a work dir's log."""

import errno
import json
import logging
import math
import os
import sys

import pytest

from runnerkit.flow.look.curve import (
    draw,
    draw_and_tell,
    draw_curve,
    limits,
    plot,
)
from runnerkit.flow.look.log_lines import Best, best_of

pytestmark = pytest.mark.usefixtures('real_pictures')


def write(path, *lines):
    path.write_text('\n'.join(json.dumps(line) for line in lines) + '\n')


def no_space(descriptor, data):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_picture(tmp_path, monkeypatch):
    assert plot(tmp_path) is None
    write(
        tmp_path / '1.log.json',
        {'mode': 'train', 'epoch': 1, 'iter': 10, 'loss': 2.0},
        {'mode': 'val', 'epoch': 1, 'iter': 10, 'acc': 1.0},
    )
    path = plot(tmp_path)
    assert path == tmp_path / 'curve.png'
    before = path.read_bytes()
    assert before.startswith(b'\x89PNG')
    monkeypatch.setattr('os.write', no_space)
    with pytest.raises(OSError, match='No space left'):
        plot(tmp_path)
    assert path.read_bytes() == before


def test_without_matplotlib_one_line_says_so(tmp_path, monkeypatch, caplog):
    from runnerkit.flow import Context

    write(tmp_path / '1.log.json', {'mode': 'train', 'epoch': 1, 'iter': 10, 'loss': 2.0})
    monkeypatch.setitem(sys.modules, 'matplotlib', None)
    with pytest.raises(ModuleNotFoundError):
        plot(tmp_path)
    with caplog.at_level('INFO', 'runnerkit'):
        context = Context(None, work_dir=tmp_path)
        draw_and_tell('learning curve', lambda: plot(tmp_path), context.logger)
    assert 'no learning curve is drawn: it needs matplotlib (pip install matplotlib)' in caplog.text


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Draws log lines; returns the figure."""
    from matplotlib.figure import Figure

    figures = []
    monkeypatch.setattr(Figure, 'savefig', lambda self, *args, **kwargs: figures.append(self))

    def draw(*lines, best=None):
        write(tmp_path / '1.log.json', *lines)
        plot(tmp_path, best)
        return figures[-1]

    draw.figures = figures
    return draw


def train_line(step, loss, lr=0.1):
    return {'mode': 'train', 'epoch': 1, 'iter': step, 'step': step, 'loss': loss, 'lr': lr}


def val_line(epoch, **values):
    return {'mode': 'val', 'epoch': epoch, 'iter': 10, 'step': 10 * epoch, **values}


def panels(figure):
    """The panels by their label: names and points of the curves."""
    return {
        axis.get_ylabel(): {line.get_label(): [*zip(*line.get_data(), strict=True)] for line in axis.get_lines()}
        for axis in figure.axes
        if axis.axison
    }


def test_losses_together_each_score_and_the_rate_on_axes_of_their_own(drawn, tmp_path):
    figure = drawn(
        train_line(5, 2.0, lr=0.1),
        val_line(1, loss=1.5, accuracy=0.5, iou=30.0),
        train_line(15, 1.0, lr=0.05),
        val_line(2, loss=1.25, accuracy=0.75, iou=40.0),
    )
    assert panels(figure) == {
        'loss': {'train loss  2 → 1': [(5, 2.0), (15, 1.0)], 'val loss  1.5 → 1.25': [(10, 1.5), (20, 1.25)]},
        'accuracy': {'val  0.5 → 0.75': [(10, 0.5), (20, 0.75)]},
        'iou': {'val  30 → 40': [(10, 30.0), (20, 40.0)]},
        'learning rate': {'_child0': [(5, 0.1), (15, 0.05)]},
    }
    assert figure.get_suptitle() == f'{tmp_path.name}: learning curve'
    assert {axis.get_xlabel() for axis in figure.axes} == {'', 'iterations'}


def test_the_best_evaluation_is_marked(drawn):
    lines = [
        val_line(1, loss=2.0, accuracy=0.5),
        val_line(2, loss=1.0, accuracy=0.9),
        val_line(3, loss=1, accuracy=0.8),
    ]
    found = panels(drawn(train_line(5, 2.0), *lines, best='out/best_accuracy_epoch_2.pth'))
    assert found['accuracy']['best 0.9, epoch 2'] == [(20, 0.9)]
    assert [(20, 0), (20, 1)] in found['loss'].values()
    assert [(20, 0), (20, 1)] not in found['learning rate'].values()
    found = panels(drawn(*lines, best='best_loss_iter_20.pth'))
    assert found['loss']['best 1, iter 20'] == [(20, 1.0)]


@pytest.mark.parametrize('name', ['latest.pth', 'best_accuracy_epoch_7.pth', 'best_iou_epoch_1.pth'])
def test_a_best_checkpoint_that_the_log_does_not_have_is_not_marked(name):
    found = best_of([val_line(1, accuracy=0.5)], name)
    assert found is None or found.value is found.step is None


def test_first_values_do_not_squash_the_rest():
    loss = [(i, value) for i, value in enumerate([90.0, *([1.0, 2.0] * 5)])]
    low, high = limits([loss])
    assert low < 1
    assert 2.5 <= high < 3
    late = [*loss, (11, 50.0)]  # this one is news
    assert limits([late])[1] > 50
    low, high = limits([[(i, value) for i, value in enumerate([-7.0, 0.9, 0.95, 0.99, 1.0])]])
    assert 0.8 < low < 0.9
    assert high > 1


def test_first_values_are_shown_where_each_counts(drawn, tmp_path):
    lines = [val_line(epoch, score=score) for epoch, score in enumerate((-7.0, 0.9, 0.95, 0.99, 1.0))]
    (focused,) = drawn(*lines).axes
    draw_curve(lines, tmp_path / 'all.png', 'all', focus=False)
    assert focused.get_ylim()[0] > 0.8
    (whole,) = drawn.figures[-1].axes
    assert whole.get_ylim()[0] < -7
    assert drawn.figures[-1].get_suptitle() == 'all'


def test_limits_of_few_equal_and_infinite_values():
    assert limits([[(0, 90.0), (1, 1.0)]])[1] > 90
    assert limits([[(0, 1.0), (1, 1.0)]]) is limits([]) is limits([[(0, math.nan)]]) is None
    low, high = limits([[(i, value) for i, value in enumerate([2.0, 1.0, math.inf, math.nan, 1.0, 1.0, 1.0])]])
    assert low < 1 < high < 2


def test_many_scores_are_not_all_drawn(drawn):
    figure = drawn(*(val_line(epoch, **{f's{i}': i * epoch for i in range(12)}) for epoch in (1, 2)))
    assert list(panels(figure)) == [f's{i}' for i in range(9)]
    assert '(without s9, s10, s11)' in figure.get_suptitle()


def axis_of(points, best=None):
    from matplotlib.figure import Figure

    axis = Figure().subplots()
    draw(axis, 'loss', {'train loss': points}, best, focus=True)
    return axis


@pytest.mark.parametrize('value', [math.nan, math.inf, -math.inf])
def test_a_diverged_curve_shows_where(value):
    axis = axis_of([(10, 2.0), (20, 1.0), (30, value), (40, value)])
    text = 'train loss: NaN or infinite from 30 on'
    line = next(line for line in axis.lines if line.get_label() == text)
    assert list(line.get_xdata()) == [30, 30]
    assert text in [each.get_text() for each in axis.get_legend().get_texts()]
    assert all(map(math.isfinite, axis.get_ylim()))


def test_a_best_score_that_is_not_finite_gets_no_star():
    for value, stars in ((math.nan, 0), (math.inf, 0), (1.0, 1)):
        axis = axis_of([(10, 2.0), (20, value)], Best('loss', value, 20, 'best_loss_epoch_2.pth'))
        assert sum(line.get_marker() == '*' for line in axis.lines) == stars


def test_values_too_large_for_an_axis_are_drawn_without_limits(tmp_path):
    lines = [{'mode': 'train', 'iter': n, 'loss': value} for n, value in enumerate([1.0, -1.7e308, 1.7e308, 2.0])]
    assert limits([[(line['iter'], line['loss']) for line in lines]]) is None


@pytest.mark.parametrize('error', [ValueError('a limit is NaN'), OSError(28, 'No space left'), MemoryError()])
def test_any_error_while_drawing_is_a_warning_with_its_reason(caplog, error):
    def fails():
        raise error

    draw_and_tell('learning curve', fails, logging.getLogger('runnerkit'))
    [record] = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert record.getMessage().startswith(f'no learning curve is drawn: {type(error).__name__}: ')
