"""The rows of a TensorDataset, at once where torch would collate the same."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset, default_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from runnerkit.data import build_dataloader
from runnerkit.data.seeding import SampleBatch, SeededSamples


def every_other():
    return torch.arange(24.0).view(4, 6)[:, ::2]


@pytest.mark.parametrize(
    ('tensors', 'indices', 'at_once'),
    [
        ([torch.arange(12.0).view(4, 3), torch.tensor([True, False, True, False])], [3, 0, 3, 1], True),
        ([torch.arange(12).view(4, 1, 3, 1)], [2, 1, 1, 3], True),
        ([torch.zeros(4, 0)], [1, 2, 2, 0], True),
        ([torch.arange(4.0)], [2, 1, 3], False),
        ([torch.arange(4).to(torch.uint16)], [2, 1, 1, 3], False),
        ([torch.arange(4.0)], [-1, 2, 0, 1], False),
        ([torch.arange(4.0)], [np.int64(1), 2, 0, 1], False),
        ([torch.arange(4.0)], [slice(1), slice(1, 2)] * 2, False),
        ([torch.arange(4.0, requires_grad=True)], [1, 2, 2, 0], False),
        ([torch.nn.Parameter(torch.ones(4), requires_grad=False)], [1, 2, 2, 0], False),
        ([every_other()], [1, 2, 2, 0], False),
        ([torch.zeros(4, 3, 2, 2).to(memory_format=torch.channels_last)], [1, 2, 2, 0], False),
        ([torch.zeros(4, 1, 2, 2).to(memory_format=torch.channels_last)], [1, 2, 2, 0], False),
        ([torch.zeros(4, dtype=torch.complex64).conj()], [1, 2, 2, 0], False),
        ([torch._neg_view(torch.ones(4))], [1, 2, 2, 0], False),
        ([], [1, 2, 2, 0], False),
    ],
)
def test_rows_of_tensors_are_taken_at_once_where_torch_would_collate_the_same(monkeypatch, tensors, indices, at_once):
    data, one_by_one = TensorDataset(*tensors), []
    getitem = TensorDataset.__getitem__
    samples = SeededSamples(data, 0, default_collate)
    monkeypatch.setattr(TensorDataset, '__getitem__', lambda self, i: (one_by_one.append(i), getitem(self, i))[1])
    batch = samples.__getitems__(SampleBatch(indices, 0, range(len(indices))))
    assert bool(one_by_one) is not at_once
    for found, wanted in zip(batch, default_collate([getitem(data, i) for i in indices]), strict=True):
        assert torch.equal(found, wanted)
        assert (type(found), found.dtype, found.stride()) == (type(wanted), wanted.dtype, wanted.stride())
        assert (found.requires_grad, found.is_leaf) == (wanted.requires_grad, wanted.is_leaf)


def test_rows_are_taken_with_one_thread_and_from_the_cpu():
    data = TensorDataset(torch.arange(200_000.0).view(100, 2000))
    batches = iter(build_dataloader(data, 50, 0, shuffle=False))
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with torch.device('meta'):
            assert torch.equal(next(batches)[0], data.tensors[0][:50])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize('kind', [torch.Tensor, tuple])
def test_rows_are_collated_as_the_user_has_told_torch(monkeypatch, kind):
    monkeypatch.setitem(default_collate_fn_map, kind, lambda batch, *, collate_fn_map=None: 'own')
    (batch,) = build_dataloader(TensorDataset(torch.arange(4.0)), 4, 0)
    assert batch in ('own', ['own'])


def test_rows_that_cannot_be_taken_at_once_are_taken_one_by_one(monkeypatch):
    def fails(*_):
        raise RuntimeError('too little memory')

    data = TensorDataset(torch.arange(8.0))
    wanted = next(iter(build_dataloader(data, 4, 0, shuffle=False)))[0]
    monkeypatch.setattr(torch.Tensor, 'index_select', fails)
    assert torch.equal(next(iter(build_dataloader(data, 4, 0, shuffle=False)))[0], wanted)


def test_rows_that_do_not_exist_are_named():
    loader = build_dataloader(TensorDataset(torch.arange(4.0)), 4, 0, sampler=[1, 2, 3, 4])
    with pytest.raises(IndexError) as info:
        list(loader)
    assert info.value.__notes__ == ['sample 4 of the data set TensorDataset']
