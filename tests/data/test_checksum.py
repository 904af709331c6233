from collections import namedtuple

import numpy as np
import pytest
import torch

from runnerkit.data.loader_state import batch_checksums
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
    assert batch_checksums(batch) == checksums
    assert batch_checksums(other) != checksums


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


def test_of_a_large_tensor_a_part_is_looked_at_evenly():
    batch = torch.zeros(40_000)
    checksums = batch_checksums(batch)
    for place in range(0, 40_000, 4_000):
        other = (torch.arange(40_000) // 10 == place // 10).float()
        assert batch_checksums(other) != checksums
    assert batch_checksums((torch.arange(40_000) == 1).float()) == checksums  # between two that are looked at


def test_the_first_thousand_elements_of_a_list():
    numbers = [0] * 1001
    assert batch_checksums([*numbers[:-1], 1]) == batch_checksums(numbers)
    assert batch_checksums([*numbers[:-2], 1, 0]) != batch_checksums(numbers)
