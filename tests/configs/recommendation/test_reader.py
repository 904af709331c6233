"""The ratings as samples of features."""

from functools import cache

import pytest
import torch
from support import ROOT

from runnerkit.utils.imports import import_object

FILE = ROOT / 'configs/recommendation/reader.py'
TABLE = f'{ROOT}/configs/online/ratings.py:table'
Reader = import_object(f'{FILE}:Reader')
read = cache(Reader)


def test_the_parts_are_disjoint_and_those_of_the_training_are_its_parts():
    parts = {name: read(TABLE, name) for name in ('train', 'test', 'fit', 'choose')}
    assert {name: len(part) for name, part in parts.items()} == {
        'train': 90_000, 'test': 10_000, 'fit': 80_000, 'choose': 10_000
    }  # fmt: skip
    pairs = {name: {tuple(pair) for pair in part.features[:, :2].tolist()} for name, part in parts.items()}
    assert len(pairs['train'] | pairs['test']) == 100_000  # each user has rated a film once
    assert pairs['fit'] | pairs['choose'] == pairs['train']
    assert not pairs['fit'] & pairs['choose']
    assert parts['train'].liked.sum() + parts['test'].liked.sum() == 55_375


def test_each_value_of_each_field_has_a_number_of_its_own():
    features = torch.cat([read(TABLE, part).features for part in ('train', 'test')])
    sizes = [943, 1682, 61, 2, 21, 73, 216]
    first = 0
    for column, size in zip(features.T, sizes, strict=True):
        assert column.unique().tolist() == [*range(first, first + size)]
        first += size
    for column, of in ((2, 0), (3, 0), (4, 0), (5, 1), (6, 1)):  # what is said of a user or film is always the same
        assert len(features[:, [of, column]].unique(dim=0)) == sizes[of]


def test_samples_are_the_rows_of_the_file():
    samples = import_object(f'{FILE}:samples')
    table = import_object(TABLE)
    features, liked = samples(TABLE)
    ratings = table('inter')
    assert ratings[0] == ['196', '242', '3', '881250949']
    for index in (0, 5, 99_999):
        same = [row[0] == ratings[index][0] for row in ratings]
        assert (features[:, 0] == features[index, 0]).tolist() == same
        assert liked[index] == (int(ratings[index][2]) >= 4)
    assert [table(name)[0] for name in ('user', 'item')] == [
        ['1', '24', 'M', 'technician', '85711'],
        ['1', 'Toy Story', '1995', "Animation Children's Comedy"],
    ]


def test_the_split_is_the_same_for_every_seed():
    torch.manual_seed(1)
    first = Reader(TABLE, 'test')
    torch.manual_seed(2)
    assert torch.equal(first.features, Reader(TABLE, 'test').features)
    features, liked = first[3]
    assert features.shape == (7,)
    assert liked.item() in (0, 1)


def test_a_part_that_does_not_exist():
    with pytest.raises(ValueError, match="part='tset' is none of test, choose, fit, train"):
        Reader(TABLE, 'tset')
