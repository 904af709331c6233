"""A field with a note for batches."""

import numpy as np
import pytest
import torch

from runnerkit.parallel import DataContainer


def test_what_was_given_is_there_and_cannot_be_set():
    field = DataContainer(torch.zeros(2, 3), stack=True, padding_value=7, cpu_only=True, pad_dims=1)
    assert (field.stack, field.padding_value, field.cpu_only, field.pad_dims) == (True, 7, True, 1)
    assert (len(field), field.size(), field.size(0), field.dim()) == (2, torch.Size([2, 3]), 2, 2)
    for name in ('data', 'stack', 'padding_value', 'cpu_only', 'pad_dims'):
        with pytest.raises(AttributeError):
            setattr(field, name, 1)
    plain = DataContainer([1, 2])
    assert (plain.stack, plain.padding_value, plain.cpu_only, plain.pad_dims) == (False, 0, False, 2)
    assert repr(plain) == 'DataContainer([1, 2])'


@pytest.mark.parametrize('data, kind', [(torch.zeros(1), 'torch.FloatTensor'), ([1], list), (np.zeros(1), np.ndarray)])
def test_the_kind_of_data(data, kind):
    assert DataContainer(data).datatype == kind


@pytest.mark.parametrize('pad_dims', [0, 4, -1, 'a'])
def test_other_numbers_of_dimensions_are_refused(pad_dims):
    with pytest.raises(AssertionError, match=f'pad_dims must be None, 1, 2 or 3, but got {pad_dims!r}'):
        DataContainer(torch.zeros(1), pad_dims=pad_dims)


@pytest.mark.parametrize('method', ['size', 'dim'])
def test_only_tensors_have_a_shape(method):
    with pytest.raises(AttributeError, match=f"has no attribute {method} for type <class 'list'>"):
        getattr(DataContainer([1]), method)()


def test_tensors_are_pinned_and_what_stays_on_the_cpu_is_not(monkeypatch):
    monkeypatch.setattr(torch.Tensor, 'pin_memory', lambda self: self + 1)  # pinning needs a GPU
    boxes = DataContainer([[torch.zeros(2), torch.zeros(1)], [torch.zeros(1)]])
    pinned = boxes.pin_memory()
    assert [[each.tolist() for each in group] for group in pinned.data] == [[[1, 1], [1]], [[1]]]
    assert boxes.data[0][0].tolist() == [0, 0]
    names = DataContainer([torch.zeros(1)], cpu_only=True)
    assert names.pin_memory() is names
    assert DataContainer(torch.zeros(1), stack=True).pin_memory().stack
