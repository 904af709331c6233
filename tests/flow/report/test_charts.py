"""Charts as SVG."""

import math
import re

import pytest

from runnerkit.flow.report.charts import Axis, Line, Point, parallel, scatter, timeline


@pytest.mark.parametrize(
    'values, places, labels',
    [
        ([0.0, 5.0, 10.0], [0.05, 0.5, 0.95], ['0', '5', '10']),
        ([1, 2, 4], [0.05, 0.35, 0.95], ['1', '2', '4']),
        ([0.001, 0.1, 10.0], [0.05, 0.5, 0.95], ['0.001', '0.1', '10']),  # logarithmic
        ([3.0, 3.0], [0.5, 0.5], ['3']),
        (['b', 'a', 'c'], [0.5, 0.05, 0.95], ['a', 'b', 'c']),
        ([True, None, 2], [0.95, None, 0.05], ['2', 'True']),
        ([math.nan, 1.0], [0.95, 0.05], ['1.0', 'nan']),
        ([[1, 2], [1]], [0.05, 0.95], ['[1, 2]', '[1]']),
    ],
)
def test_axes(values, places, labels):
    axis = Axis(values)
    assert [value if value is None else pytest.approx(axis.at(value), abs=0.01) for value in values] == places
    assert [label for _, label in axis.ticks] == labels


def test_points_have_texts_and_classes():
    points = [Point(0, 0.5, 'best', 'first & <best>'), Point(1, 0.25, 'pruned', 'second')]
    drawn = scatter('a < b', ('trial', 'score'), points, [(0, 0.5), (1, 0.5)])
    assert re.findall(r'<circle class="(\w+)"', drawn) == ['pruned', 'best']  # the best one is on top
    assert '<title>first &amp; &lt;best&gt;</title>' in drawn
    assert 'aria-label="a &lt; b: 2 trials, score over trial"' in drawn
    assert drawn.count('<polyline class="line"') == 1
    assert scatter('none', ('a', 'b'), []) == ''


def test_lines_over_axes():
    rows = [Line((1, 'x', 0.5), 'completed', 0.0, 'one'), Line((2, None, 0.75), 'best', 1.0, 'two')]
    drawn = parallel('all', ['a', 'b', 'c'], rows)
    assert drawn.count('class="axis"') == 3
    lines = re.findall(r'<polyline class="(\w+)" style="--rank:(\d+)%;" points="([^"]*)"', drawn)
    assert [(kind, rank, len(path.split())) for kind, rank, path in lines] == [
        ('completed', '0', 3), ('best', '100', 2),
    ]  # fmt: skip
    assert parallel('few', ['a'], rows) == ''
    assert parallel('few', ['a', 'b', 'c'], rows[:1]) == ''


def test_far_scores_are_at_the_edge_and_the_others_have_the_room():
    scores = [*(2 + i / 10 for i in range(8)), 50.0]
    axis = Axis(scores, is_cut=True)
    assert axis.at(50.0) == pytest.approx(0.995)
    assert axis.at(2.7) - axis.at(2.0) > 0.2
    assert Axis(scores[1:], is_cut=True).at(50.0) > 0.99 > Axis(scores[2:], is_cut=True).at(50.0)  # of seven, all
    assert Axis([3.0] * 8 + [4.0], is_cut=True).at(4.0) == pytest.approx(0.95)
    drawn = scatter('all', ('x', 'y'), [Point(i, score, 'completed', f'{score}') for i, score in enumerate(scores)])
    assert re.findall(r'class="completed far"[^>]*><title>([\d.]+)', drawn) == ['50.0']


def test_labels_of_axes_are_above_the_lines_through_their_values_and_the_lowest_is_below():
    drawn = parallel('all', ['a', 'b'], [Line(values, '', 0.0, '') for values in ([1, 3], [5, 3])])
    heights = {label: float(y) for y, label in re.findall(r'<text class="(?:in|end)"[^>]* y="([\d.]+)">(\d)<', drawn)}
    lines = [float(y) for y in re.findall(r'[\d.]+,([\d.]+)', drawn.partition('<line')[0])]
    low, high, middle = max(lines), min(lines), lines[1]
    assert heights == {'1': low + 12, '5': high - 4, '3': middle - 4}


def test_axes_are_as_they_are_told():
    whole = Axis([0.5, 0.6], is_log=True)
    assert whole.at(0.5477) == pytest.approx(0.5, abs=1e-3)  # the middle of a logarithmic scale
    assert Axis([1, 1000], is_log=False).at(500.5) == pytest.approx(0.5)
    choices = Axis([64, 16, None], choices=[64, 32, 16])
    assert [label for _, label in choices.ticks] == ['64', '32', '16']
    assert choices.at(32) == pytest.approx(0.5)
    assert [label for _, label in Axis([2, 3], is_log=True).ticks] == ['2', '3']  # no 2.449, and 2 once


def test_labels_that_are_too_long_are_cut():
    points = [Point(name * 30, 1.0, '', '') for name in 'abc']
    labels = re.findall(r'<text class="x"[^>]*>([^<]*)', scatter('long', ('a', 'b'), points))
    assert labels == [name * 17 + '…' for name in 'abc']
    names = re.findall(
        r'<text class="(?:in|x|end)"[^>]*>(…[^<]*)',
        parallel('all', ['a.' * 200 + f'key{i}' for i in range(9)], [Line([i] * 9, '', 0.0, '') for i in (1, 2)]),
    )
    assert [name[-4:] for name in names] == [f'key{i}' for i in range(9)]
    assert max(map(len, names)) <= 27


def test_trials_that_run_at_once_have_a_row_each():
    drawn = timeline('workers', [(0, 10, 'completed', 'a'), (1, 4, 'failed', 'b'), (5, 9, 'best', 'c')])
    assert '3 trials on 2 workers' in drawn
    rows = dict(re.findall(r'y="(\d+)"[^>]*><title>(\w)', drawn))
    assert list(rows.values()) == ['a', 'c']  # b and c are in the second row
    assert timeline('none', []) == ''
    assert timeline('one worker', [(0, 1, 'completed', 'a'), (1, 4, 'best', 'b')]) == ''
