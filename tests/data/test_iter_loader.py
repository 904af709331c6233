import pytest
from torch.utils.data import DataLoader, DistributedSampler

from runnerkit.data.iter_loader import IterLoader, new_iter_loaders


def test_it_knows_its_pass_and_place():
    reader = IterLoader([1, 2])
    assert (len(reader), reader.epoch, reader.position) == (2, 0, 0)
    found = [(next(reader), reader.epoch, reader.position) for _ in range(5)]
    assert found == [(1, 0, 1), (2, 0, 2), (1, 1, 1), (2, 1, 2), (1, 2, 1)]


def test_without_batches():
    with pytest.raises(ValueError, match='gives no batches'):
        next(IterLoader([]))


def test_it_tells_its_samplers_the_epoch():
    sampler = DistributedSampler(range(6), 1, 0)
    reader = IterLoader(DataLoader(range(6), 3, sampler=sampler))
    epochs = []
    for _ in range(5):
        next(reader)
        epochs.append(sampler.epoch)
    assert epochs == [0, 0, 1, 1, 2]


def test_loaders_that_nobody_has_begun():
    former = IterLoader([0])
    one, other = IterLoader([1]), IterLoader([2])
    assert new_iter_loaders(since=former.number) == [one, other]
    next(one)
    assert new_iter_loaders(since=former.number) == [other]


def test_a_batch_that_is_given_back_comes_next():
    loader = IterLoader([1, 2, 3])
    given = [next(loader), next(loader)]
    loader.give_back(given[1])
    assert loader.position == 1
    assert [next(loader), next(loader), next(loader)] == [2, 3, 1]
    assert loader.epoch == 1
