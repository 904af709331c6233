"""Loaders that the user has built, in place of a data set."""

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, TensorDataset

from runnerkit.data import given
from runnerkit.data.given import check_loader, given_loader, is_loader
from runnerkit.data.sampler import EpochSampler

POINTS = TensorDataset(torch.arange(10))


class Endless(IterableDataset):
    def __iter__(self):
        return iter(range(3))


class Batches:
    def __iter__(self):
        return iter([torch.arange(2)])


@pytest.mark.parametrize(
    ('value', 'expected'),
    [(DataLoader(POINTS), True), (Batches(), True), (POINTS, False), (Endless(), False), ([1], False), (3, False)],
    ids=['DataLoader', 'iterable', 'data set', 'iterable data set', 'list', 'number'],
)
def test_what_gives_batches(value, expected):
    assert is_loader(value) is expected


def test_iterators_are_refused():
    check_loader(Batches())
    with pytest.raises(
        TypeError, match='an iterator .generator. ends after one pass: .* whose __iter__ calls it again'
    ):
        check_loader(batch for batch in Batches())


@pytest.mark.parametrize(
    'options',
    [
        {'batch_size': 2},
        {'batch_size': 2, 'shuffle': True},
        {'batch_size': None},
        {'batch_sampler': [[0, 1], [2, 3, 4], [5, 6], [7, 8, 9]]},
        {'batch_sampler': BatchSampler(SequentialSampler(POINTS), 2, False)},
    ],
    ids=['in order', 'shuffled', 'single samples', 'batches', 'torch batches'],
)
def test_ranks_share_what_a_plain_loader_gives(options, monkeypatch):
    loader = DataLoader(POINTS, **options)
    assert given_loader(loader, 0, trains=True) is loader
    monkeypatch.setattr('runnerkit.data.shares._are_same', lambda *_: True)  # which asks all ranks
    seen = []
    for rank in range(2):
        monkeypatch.setattr(given, 'get_dist_info', lambda rank=rank: (rank, 2))
        share = given_loader(loader, 0, trains=False)
        assert len(share) < len(loader)
        assert share.batch_size == loader.batch_size or loader.batch_size is None
        seen += [batch[0].reshape(-1) for batch in share]
    assert sorted(torch.cat(seen).tolist()) == list(range(10))


def test_what_cannot_be_shared_is_kept(monkeypatch):
    monkeypatch.setattr(given, 'get_dist_info', lambda: (0, 2))
    for loader in (Batches(), DataLoader(Endless()), DataLoader(POINTS, sampler=EpochSampler(POINTS, world_size=2))):
        assert given_loader(loader, 0, trains=True) is loader
