from collections import namedtuple

import numpy as np
import pytest
import torch

from runnerkit.data.checksum import batch_checksums, same_batch
from runnerkit.parallel import DataContainer

Pair = namedtuple('Pair', 'image label')

#: A batch, one that differs in one thing, and the places that are looked at.
BATCHES = {
    'tensor': (torch.arange(3.0), torch.tensor([0.0, 1.0, 3.0]), ['batch']),
    'shape': (torch.zeros(2, 3), torch.zeros(3, 2), ['batch']),
    'no numbers': (torch.zeros(0, 3), torch.zeros(0, 2), ['batch']),
    'kind of number': (torch.zeros(2, dtype=torch.int32), torch.zeros(2, dtype=torch.float32), ['batch']),
    'one number': (torch.tensor(1.0), torch.tensor(2.0), ['batch']),
    'half precision': (torch.ones(2).bfloat16(), torch.zeros(2).bfloat16(), ['batch']),
    'conjugated': (torch.tensor([1 + 2j]).conj(), torch.tensor([1 + 2j]), ['batch']),
    'transposed': (torch.arange(6.0).view(2, 3).t(), torch.arange(6.0).view(3, 2), ['batch']),
    'large tensor': (torch.arange(1e6), torch.arange(1e6).flip(0), ['batch']),
    'large array': (np.arange(1e6), np.arange(1e6)[::-1], ['batch']),
    'array': (np.zeros((2, 3)), np.zeros((3, 2)), ['batch']),
    'kind of number in an array': (np.zeros(2, 'float32'), np.zeros(2, 'int32'), ['batch']),
    'texts in an array': (np.array(['a', 'b']), np.array(['a', 'c']), ['batch']),
    "numpy's number": (np.float32(1), np.float32(2), ['batch']),
    'number': (1, 2, ['batch']),
    'text': (['a'], ['b'], ['batch[0]']),
    'list': ([torch.ones(1), 7], [torch.ones(1), 8], ['batch[0]', 'batch[1]']),
    'named tuple': (Pair(torch.ones(1), 0), Pair(torch.ones(1), 1), ['batch[0]', 'batch[1]']),
    'nested': ({'a': [{'b': torch.ones(1)}]}, {'a': [{'b': torch.zeros(1)}]}, ["batch['a'][0]['b']"]),
    'container': (
        {'img': DataContainer(torch.ones(1), stack=True)},
        {'img': DataContainer(torch.zeros(1), stack=True)},
        ["batch['img'].data"],
    ),
}


@pytest.mark.parametrize('name', BATCHES)
def test_equal_batches_are_the_same_and_others_are_not(name):
    batch, other, places = BATCHES[name]
    checksums = batch_checksums(batch)
    assert list(checksums) == places
    assert same_batch(batch, checksums) is True
    assert same_batch(other, checksums) is False


@pytest.mark.parametrize(
    'batch',
    [
        None,
        {1, 2},
        np.array([{}]),
        torch.ones(2).to_sparse(),
        torch.ones(2, device='meta'),
        torch.nested.nested_tensor([torch.ones(2)]),
        torch.nn.Parameter(torch.ones(2)),
        torch.inference_mode()(torch.ones)(2),
    ],
    ids=['nothing', 'set', 'objects', 'sparse', 'meta', 'nested', 'subclass', 'inference'],
)
def test_what_cannot_be_compared_is_left_out(batch):
    checksums = batch_checksums([batch, 1])
    assert list(checksums) == ['batch[1]']
    assert same_batch([batch, 1], checksums) is True
    assert same_batch(batch, batch_checksums(batch)) is None


def test_a_tensor_that_a_step_wrote_to_is_left_out():
    batch = {'x': torch.ones(2), 'y': torch.ones(2)}
    batch['x'].mul_(2)
    checksums = batch_checksums(batch)
    assert same_batch({'x': torch.ones(2), 'y': torch.ones(2)}, checksums) is True
    assert same_batch({'x': torch.ones(2), 'y': torch.zeros(2)}, checksums) is False
    assert same_batch({'x': torch.ones(2)}, checksums) is None


def test_of_a_large_tensor_a_part_is_looked_at_evenly():
    batch = torch.zeros(40_000)
    checksums = batch_checksums(batch)
    for place in range(0, 40_000, 4_000):
        other = (torch.arange(40_000) // 10 == place // 10).float()
        assert same_batch(other, checksums) is False
    assert same_batch((torch.arange(40_000) == 1).float(), checksums) is True  # between two that are looked at


def test_the_first_thousand_elements_of_a_list():
    numbers = [0] * 1001
    assert same_batch([*numbers[:-1], 1], batch_checksums(numbers)) is True
    assert same_batch([*numbers[:-2], 1, 0], batch_checksums(numbers)) is False


def test_what_is_in_one_of_them_only_is_not_compared():
    assert same_batch({'a': 1, 'c': 3}, batch_checksums({'a': 1, 'b': 2})) is True
    assert same_batch({'a': 1}, {}) is None
