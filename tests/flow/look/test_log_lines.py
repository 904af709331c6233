"""The lines of a work dir's JSON logs."""

import json
import math
import random

import pytest

from runnerkit.flow.look import log_lines as module
from runnerkit.flow.look.log_lines import best_of, curves_of, read_log, thinned


def write(path, *lines):
    path.write_text('\n'.join(json.dumps(line) for line in lines) + '\n')


def test_each_moment_counts_once_as_it_was_done_last(tmp_path):
    write(
        tmp_path / '1.log.json',
        {'seed': 1},
        {'mode': 'train', 'epoch': 1, 'iter': 10, 'step': 10, 'loss': 2.0},
        {'mode': 'train', 'epoch': 2, 'iter': 10, 'step': 20, 'loss': 1.5},
    )
    write(
        tmp_path / '2.log.json',
        {'mode': 'train', 'epoch': 2, 'iter': 10, 'step': 20, 'loss': 1.0},
        {'mode': 'val', 'epoch': 2, 'iter': 10, 'step': 20, 'acc': 0.5},
    )
    assert curves_of(read_log(tmp_path).lines) == {
        ('train', 'loss'): [(10, 2.0), (20, 1.0)],
        ('val', 'acc'): [(20, 0.5)],
    }


def test_a_step_that_goes_back_supersedes_what_follows_and_torn_lines_are_left_out(tmp_path):
    write(
        tmp_path / '1.log.json', *({'mode': 'train', 'epoch': 1, 'iter': n, 'step': n, 'loss': 1.0} for n in (3, 6, 9))
    )
    write(tmp_path / '2.log.json', *({'mode': 'train', 'epoch': 1, 'iter': n, 'step': n, 'loss': 2.0} for n in (4, 8)))
    with open(tmp_path / '2.log.json', 'a') as file:
        file.write('{"mode": "train", "epoch"')
    assert curves_of(read_log(tmp_path).lines) == {('train', 'loss'): [(3, 1.0), (4, 2.0), (8, 2.0)]}


def test_rates_of_several_optimizers_and_groups():
    lines = [
        {'mode': 'train', 'step': 5, 'lr': {'G': 0.1, 'D': 0.2}},
        {'mode': 'val', 'step': 5, 'lr': {'G': 9}, 'lr_groups': {'x2': 9}},
        {'mode': 'train', 'step': 6, 'lr': 0.1, 'lr_groups': {'x2': 0.2}},
    ]
    assert curves_of(lines) == {
        ('train', 'lr G'): [(5, 0.1)],
        ('train', 'lr D'): [(5, 0.2)],
        ('train', 'lr'): [(6, 0.1)],
        ('train', 'lr x2'): [(6, 0.2)],
    }


def test_most_values_of_a_long_log_go_straight_to_their_curves(monkeypatch):
    looks, look = [], module._measured
    monkeypatch.setattr(module, '_measured', lambda *entry: looks.append(entry) or look(*entry))
    about = {'mode': 'train', 'epoch': 1, 'iter': 1, 'timestamp': 1.7e9}
    found = curves_of({**about, 'step': step, 'memory': 2**62, 'loss': 0.5} for step in range(1000))
    assert looks == [('memory', 2**62), ('loss', 0.5)]  # the first of each curve
    assert {name: len(points) for (_, name), points in found.items()} == {'memory': 1000, 'loss': 1000}
    odd = [{'mode': 'train', 'step': 1, 'memory': value} for value in (1, True, 2**63, None, -2, '3', 0.5)]
    assert curves_of(odd) == {('train', 'memory'): [(1, 1), (1, -2), (1, 0.5)]}


def test_iterations_of_lines_without_a_step_are_counted_on(tmp_path):
    places = [('train', 1, 10), ('train', 1, 20), ('val', 1, 4), ('train', 2, 10), ('train', 2, 20), ('val', 2, 4)]
    write(tmp_path / '1.log.json', *({'mode': mode, 'epoch': epoch, 'iter': n} for mode, epoch, n in places))
    assert [line['step'] for line in read_log(tmp_path).lines] == [10, 20, 20, 30, 40, 40]


def mmcv_lines(first, last):
    """Lines of MMCV's epoch runner: iterations of the epoch, and no ``step``."""
    for epoch in range(first, last + 1):
        yield from ({'mode': 'train', 'epoch': epoch, 'iter': n, 'loss': 1.0} for n in (50, 100))
        yield {'mode': 'val', 'epoch': epoch, 'iter': 20, 'acc': epoch / 10}


def test_a_resumed_run_of_mmcv_keeps_its_beginning(tmp_path):
    write(tmp_path / '1.log.json', *mmcv_lines(1, 3))
    write(tmp_path / '2.log.json', *mmcv_lines(3, 4))  # the third epoch once more
    log = read_log(tmp_path)
    assert curves_of(log.lines)['val', 'acc'] == [(100, 0.1), (200, 0.2), (300, 0.3), (400, 0.4)]
    assert log.resumed_at == [250]


def test_a_resumed_iteration_runner_of_mmcv_counts_all_iterations(tmp_path):
    for name, first, last in (('1', 50, 600), ('2', 450, 800)):
        steps = range(first, last + 1, 50)
        write(
            tmp_path / f'{name}.log.json', *({'mode': 'train', 'epoch': 1 + n // 300, 'iter': n, 'a': n} for n in steps)
        )
    assert curves_of(read_log(tmp_path).lines)['train', 'a'] == [(n, n) for n in range(50, 801, 50)]


def test_a_line_without_an_end_is_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(module, 'MOST_LINE', 1000)
    path = tmp_path / '1.log.json'
    write(path, {'seed': 3}, {'mode': 'train', 'step': 1, 'loss': 1.0})
    with open(path, 'a') as file:
        file.truncate(100_000)  # zeros, as a power failure leaves them
    assert max(map(len, module.text_lines(path))) == 1000
    log = read_log(tmp_path)
    assert (log.meta, [line['step'] for line in log.lines]) == ({'seed': 3}, [1])


def test_the_largest_numbers_are_averaged():
    found = thinned([(i, 1.7e308) for i in range(100)], 10)
    assert found['y'] == found['high'] == [5e307] * 10  # of which a page can still take differences


def test_the_best_has_the_name_of_its_score():
    lines = [{'mode': 'val', 'epoch': n, 'step': 10 * n, 'clean/acc': n / 4, 'other': 0} for n in (1, 2, 3)]
    best = best_of(lines, 'work/best_clean_acc_epoch_2.pth')
    assert (best.score, best.value, best.step, best.when) == ('clean/acc', 0.5, 20, 'epoch 2')
    assert best_of(lines, 'best_clean_acc_iter_30.pth').value == 0.75


def test_long_curves_are_drawn_from_averages_and_extremes():
    points = [(step, math.nan if step == 5000 else float(step % 2)) for step in range(1, 100_001)]
    found = thinned(points, 400)
    assert len(found['x']) == len(found['y']) == 400
    assert set(found['low']) == {0.0}
    assert set(found['high']) == {1.0}
    assert found['bad'] == [5000]
    assert thinned(points[:10], 400)['y'] == [1.0, 0.0] * 5


def test_a_curve_that_ceases_to_be_finite():
    found = thinned([(1, 1.0), (2, math.inf), (3, math.nan), (4, 2.0), (5, math.nan)], 40)
    assert found['y'] == [1.0, None, None, 2.0, None]
    assert found['bad'] == [2, 5]
    assert found['last'] is None
    assert set(thinned([(step, math.nan) for step in range(200)], 40)['y']) == {None}


def test_lines_are_parsed_together(tmp_path, monkeypatch):
    lines = [{'mode': 'train', 'epoch': 1, 'iter': n, 'step': n, 'loss': n / 7} for n in range(1, 20_001)]
    write(tmp_path / '1.log.json', {'seed': 1}, *lines)
    calls = []
    loads = json.loads
    monkeypatch.setattr(json, 'loads', lambda text: calls.append(len(text)) or loads(text))
    assert read_log(tmp_path).lines == lines
    assert len(calls) < 20
    assert max(calls) < 140_000  # however long the file is


@pytest.mark.parametrize(
    'pair',
    [
        ['{"mode": "train", "step": 2', '"loss": 1.0}'],  # a line in two, which together are one
        ['{"mode": "train", "step": 2}, {"mode": "train", "step": 3}', '[]'],
        ['{"mode": "train", "step": 2}, {"mode": "train", "step": 3}', ''],
        ['{"mode": "train", "step": 1' + '0' * 5000 + '}', '3'],
    ],
)
def test_a_damaged_line_among_others_is_left_out_alone(tmp_path, pair):
    texts = ['{"mode": "train", "step": 1, "loss": NaN}', *pair, '{"mode": "train", "step": 4, "loss": -Infinity}']
    (tmp_path / '1.log.json').write_text('\n'.join(texts) + '\n')
    (_, (one, first), (four, last)) = [(0, 0), *curves_of(read_log(tmp_path).lines)['train', 'loss']]
    assert (one, four, last) == (1, 4, -math.inf)
    assert math.isnan(first)
    assert [line['step'] for line in read_log(tmp_path).lines] == [1, 4]


def drawn_log(draw, path):
    """A log of epochs whose steps go back, with lines of several kinds and some that are torn."""
    with open(path, 'a') as file:
        file.write(json.dumps({'seed': draw.randrange(9)}) + '\n')
        step = draw.randrange(3) * 10
        for _ in range(draw.randrange(1, 40)):
            step = max(1, step + draw.choice([1, 1, 1, 1, 5, 0, -7]))
            place = {'epoch': 1 + step // 10, 'iter': 1 + step % 10, 'step': step}
            line = draw.choice([
                {'mode': 'train', **place, 'loss': draw.random(), 'lr': {'a': 0.1}},
                {'mode': 'train', **place, 'loss': draw.random()},
                {'mode': 'train', **place, 'loss': draw.random()},
                {'mode': 'val', **place, 'acc': draw.random()},
                {'mode': 'other', **place, 'acc': draw.random()},
            ])  # fmt: skip
            text = json.dumps(line)
            file.write((text[: draw.randrange(len(text))] if draw.random() < 0.05 else text) + '\n')


@pytest.mark.parametrize('seed', range(40))
def test_without_lines_of_the_training_the_rest_is_the_same(tmp_path, seed):
    draw = random.Random(seed)
    for name in '123'[: draw.randrange(1, 4)]:
        drawn_log(draw, tmp_path / f'{name}.log.json')
    whole, rest = read_log(tmp_path), read_log(tmp_path, only_scores=True)
    assert (rest.meta, rest.resumed_at) == (whole.meta, whole.resumed_at)
    assert [each for each in rest.lines if each['mode'] != 'train'] == [
        each for each in whole.lines if each['mode'] != 'train'
    ]
    for end in (0, -1):
        assert rest.lines[end]['step'] == whole.lines[end]['step']
        assert rest.lines[end]['mode'] == whole.lines[end]['mode']


def test_lines_between_two_of_a_training_are_not_parsed(tmp_path):
    lines = [{'mode': 'train', 'epoch': 1, 'iter': n, 'step': n, 'loss': n / 7} for n in range(1, 101)]
    score = {'mode': 'val', 'epoch': 1, 'iter': 1, 'step': 50, 'acc': 0.5}
    write(tmp_path / '1.log.json', *lines[:50], score, *lines[50:])
    assert read_log(tmp_path, only_scores=True).lines == [lines[0], lines[49], score, lines[50], lines[99]]


def test_all_lines_are_read_where_one_has_no_step(tmp_path):
    write(tmp_path / '1.log.json', *mmcv_lines(1, 3))
    assert read_log(tmp_path, only_scores=True) == read_log(tmp_path)
