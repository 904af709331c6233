"""Which start has trained which iteration: from records alone."""

import json
import shutil
import time

import pytest
import torch
from written_runs import lines_of, write_log

from runnerkit.flow.moment.history import history_of, saved_in


def run_with(folder, *starts, epochs=3):
    write_log(folder, lines_of(epochs))
    (folder / 'run.json').write_text(json.dumps({'version': 1, 'starts': list(starts)}))
    return history_of(folder)


def start(begin, end=None, **others):
    return {'iterations': begin, **({} if end is None else {'iterations_at_end': end}), **others}


def test_one_start_has_trained_all(tmp_path):
    history = run_with(tmp_path, start(0, 30))
    assert [(each.number, each.begin, each.end) for each in history.starts] == [(1, 0, None)]
    assert history.length == 30
    assert history.discarded == []


def test_later_starts_count_and_what_they_trained_again_is_named(tmp_path):
    history = run_with(tmp_path, start(0), start(10, 25), start(20, 30))
    assert [(each.number, each.begin, each.end) for each in history.starts] == [(1, 0, 10), (2, 10, 20), (3, 20, None)]
    assert [history.start_of(number).number for number in (0, 9, 10, 19, 20, 29)] == [1, 1, 2, 2, 3, 3]
    assert [text.partition(';')[0] for text in history.discarded] == [
        'start 1 may have trained iterations from 10 up to an unknown one',
        'start 2 may have trained iterations from 20 to 24',
    ]


def test_a_start_that_all_its_iterations_were_trained_again_of_does_not_count(tmp_path):
    history = run_with(tmp_path, start(0, 12), start(10, 25), start(10, 30))
    assert [each.number for each in history.starts] == [1, 3]
    assert history.starts[0].end == 10


@pytest.mark.parametrize(
    ('place', 'number'),
    [
        *((0, 0), ('7', 7), (29, 29), ('[1][1]', 0), ('[3][5]', 24), ('[2][10/10]', 19), ('[5/40]', 4)),
        ('[4][3]', 32),  # of an epoch without a line, by the length of the others
    ],
)
def test_places_are_numbers_of_iterations_or_those_of_the_log(tmp_path, place, number):
    assert run_with(tmp_path, start(0, 40)).iteration_at(place) == number


def test_what_is_no_place_of_the_run_is_refused(tmp_path):
    history = run_with(tmp_path, start(0, 30))
    for said, places in {
        '0 to 29': [30, '[9][1]'],
        'an epoch of this run has 10': ['[1][11]'],
        r'a number of iterations, .* such as \[3\]\[50\]': [-1, 'third', 1.5, True, '[1]x', None],
    }.items():
        for place in places:
            with pytest.raises(ValueError, match=said):
                history.iteration_at(place)


@pytest.mark.parametrize(
    ('begin', 'number', 'times'),
    [(0, 13, 1), (0, 12, 0), (0, 21, 2), (12, 21, 2), (14, 21, 1), (20, 21, 1), (21, 22, 0)],
)
def test_roll_backs_that_a_training_meets_on_its_way(tmp_path, begin, number, times):
    history = run_with(tmp_path, start(0, 30, rolled_back=[12, 20]))
    assert history.starts[0].roll_backs(begin, number) == times
    assert [text.partition(';')[0] for text in history.discarded] == [
        'start 1 went back to iteration 12',
        'start 1 went back to iteration 20',
    ]


def test_damaged_files_and_best_ones_are_no_checkpoints_to_begin_with(trained, tmp_path):
    work_dir, _ = trained('epochs')
    content = (work_dir / 'epoch_3.pth').read_bytes()
    for name in ('epoch_3.pth', 'best_loss_epoch_3.pth'):
        (tmp_path / name).write_bytes(content)
    (tmp_path / 'epoch_4.pth').write_bytes(content[: len(content) // 2])
    torch.save({'state_dict': {}}, tmp_path / 'epoch_5.pth')
    assert [(saved.iterations, saved.path) for saved in saved_in(tmp_path)] == [(18, str(tmp_path / 'epoch_3.pth'))]


def test_a_checkpoint_of_discarded_iterations_does_not_count(trained, tmp_path):
    run = shutil.copytree(trained('epochs')[0], tmp_path / 'run', symlinks=True)
    assert [saved.iterations for saved in history_of(run).checkpoints()] == [24, 18]
    content = json.loads((run / 'run.json').read_text())
    first = {**content['starts'][0]}
    content['starts'][0]['iterations_at_end'] = 20  # so epoch_4.pth is of an earlier run
    (run / 'run.json').write_text(json.dumps(content))
    assert [saved.iterations for saved in history_of(run).checkpoints()] == [18]
    again = {**first, 'iterations': 18, 'begin': time.time() + 60}  # from epoch_3.pth: epoch_4.pth is the former one's
    (run / 'run.json').write_text(json.dumps({'version': 1, 'starts': [first, again]}))
    assert [saved.iterations for saved in history_of(run).checkpoints()] == [18]
