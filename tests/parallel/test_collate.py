"""Batches of samples with containers; the expected shapes are what the real MMCV 1.7.2 gave."""

from collections import namedtuple
from collections.abc import Sequence

import pytest
import torch
from torch.utils.data import DataLoader

from runnerkit.parallel import DataContainer, collate

Pair = namedtuple('Pair', 'image label')


def fields(*shapes, **options):
    return [DataContainer(torch.full(shape, i + 1.0), **options) for i, shape in enumerate(shapes)]


STACKED = [
    (None, [(1, 2), (1, 2)], 1, [(1, 1, 2), (1, 1, 2)]),
    (None, [(1, 2), (1, 2)], 2, [(2, 1, 2)]),
    (1, [(2, 3), (2, 5)], 1, [(1, 2, 3), (1, 2, 5)]),
    (1, [(2, 3), (2, 5)], 2, [(2, 2, 5)]),
    (1, [(1, 2), (1, 2), (1, 4)], 2, [(2, 1, 2), (1, 1, 4)]),
    (2, [(3, 2, 3), (3, 4, 2)], 2, [(2, 3, 4, 3)]),
    (3, [(1, 2, 3, 1), (1, 1, 1, 4)], 2, [(2, 1, 2, 3, 4)]),
]


@pytest.mark.parametrize('pad_dims, shapes, samples, expected', STACKED)
def test_stacked_fields_are_padded_to_the_largest(pad_dims, shapes, samples, expected):
    batch = collate(fields(*shapes, stack=True, pad_dims=pad_dims), samples)
    assert [tuple(data.shape) for data in batch.data] == expected
    assert (batch.stack, batch.cpu_only) == (True, False)


def test_the_ends_are_filled_with_the_value():
    batch = collate(fields((1, 2), (1, 3), stack=True, pad_dims=1, padding_value=-7), 2)
    assert batch.data[0].tolist() == [[[1, 1, -7]], [[2, 2, 2]]]
    assert batch.padding_value == -7


@pytest.mark.parametrize('cpu_only', [True, False])
def test_other_fields_are_listed_for_each_device(cpu_only):
    batch = collate(fields((2,), (3,), (1,), cpu_only=cpu_only), 2)
    assert [[len(data) for data in group] for group in batch.data] == [[2, 3], [1]]
    assert (batch.stack, batch.cpu_only) == (False, cpu_only)


WRONG = [
    (dict(pad_dims=2), [(3, 2, 3), (2, 4, 2)]),
    (dict(pad_dims=2), [(2, 3), (2, 4)]),
    (dict(pad_dims=1), [(2,), (3,)]),
    (dict(pad_dims=2), [(3, 2, 3), (2, 2)]),
]


@pytest.mark.parametrize('options, shapes', WRONG)
def test_other_dimensions_must_agree(options, shapes):
    with pytest.raises(AssertionError, match=rf'cannot be stacked with pad_dims={options["pad_dims"]}'):
        collate(fields(*shapes, stack=True, **options), 2)


def test_only_tensors_are_stacked():
    with pytest.raises(AssertionError, match='must hold a tensor, but it holds a list'):
        collate([DataContainer([1], stack=True)], 1)


def test_samples_are_walked_through():
    def sample(i):
        return {'x': torch.full((1,), float(i)), 'meta': DataContainer({'i': i}, cpu_only=True), 'name': f'no {i}'}

    batch = collate([sample(0), sample(1)], 2)
    assert batch['x'].tolist() == [[0], [1]]
    assert batch['meta'].data == [[{'i': 0}, {'i': 1}]]
    assert batch['name'] == ['no 0', 'no 1']
    assert [each.tolist() for each in collate([(1, 2.0), (3, 4.0)])] == [[1, 3], [2.0, 4.0]]
    pair = collate([Pair(torch.zeros(1), 1), Pair(torch.zeros(1), 2)])
    assert type(pair) is Pair
    assert pair.label.tolist() == [1, 2]


def test_samples_of_different_lengths_are_no_batch():
    with pytest.raises(ValueError, match='shorter'):
        collate([[1, 2], [1]])


@pytest.mark.parametrize('batch', [5, {1, 2}])
def test_a_batch_is_a_sequence(batch):
    assert not isinstance(batch, Sequence)
    with pytest.raises(TypeError, match='a batch must be a sequence of samples'):
        collate(batch)


def test_in_a_loader_with_workers():
    samples = [{'img': DataContainer(torch.ones(1, 1, i + 1), stack=True)} for i in range(4)]
    shapes = [tuple(batch['img'].data[0].shape) for batch in DataLoader(samples, 2, collate_fn=of_two, num_workers=1)]
    assert shapes == [(2, 1, 1, 2), (2, 1, 1, 4)]


def of_two(batch):
    return collate(batch, samples_per_gpu=2)
