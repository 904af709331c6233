"""Workflow entries and the splits of ``data`` that they name."""

import pytest

from runnerkit.flow.stages.splits import mode_of, split_of, splits_in, validates

ONE = {'type': 'Noisy'}
DATA = {
    'samples_per_gpu': 4,
    'pin_memory': True,
    'train': ONE,
    'val': ONE,
    'val_hard': {'a': ONE, 'b': ONE},
    'val_hard_dataloader': {'samples_per_gpu': 2},
    'train_big': [ONE],
    'test': ONE,
    'dis': ONE,
}


def test_the_splits_are_what_holds_data():
    assert splits_in(DATA) == ['train', 'val', 'val_hard', 'train_big', 'test', 'dis']


@pytest.mark.parametrize(
    'name, split, mode',
    [
        ('train', 'train', 'train'),
        ('val', 'val', 'val'),
        ('val_hard', 'val_hard', 'val'),
        ('test', 'test', 'val'),
        ('train_big', 'train_big', 'train'),
        ('dis', 'dis', 'dis'),  # a step of the model, with data of its own
        ('gen', 'train', 'gen'),  # one without
        ('val_easy', 'train', 'val_easy'),  # no split: refused later, unless the model has such a step
    ],
)
def test_what_an_entry_names(name, split, mode):
    assert (split_of(name, DATA), mode_of(name, DATA)) == (split, mode)


def test_what_validates():
    assert validates([('train', 1), ('val', 1), ('val_hard', 2)], DATA) == ['val', 'val_hard']
    assert validates([('val', 1)], None) == ['val']
    assert validates('nonsense', DATA) == validates([3, (), (4, 1)], DATA) == []
