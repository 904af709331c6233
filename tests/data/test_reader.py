"""Passes over loaders of all kinds, left and entered again."""

import warnings
from pathlib import Path

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler

from runnerkit.data.loader import SeededLoader
from runnerkit.data.reader import IterLoader, Reader, epoch_batches, loader_seed, set_epoch
from runnerkit.data.sampler import EpochSampler
from runnerkit.utils.user_files import module_of_file

noisy = module_of_file(str(Path(__file__).with_name('noisy_datasets.py')))

#: What is asked of a data set whose loader is entered: is the same sample the same again?
PROBED = [0, 0]


def indices(batches):
    return [index.tolist() for index, _ in batches]


@pytest.fixture
def dataset():
    return noisy.Noisy(10)


@pytest.mark.parametrize('start', [0, 2])
def test_our_own_loader_enters(dataset, start):
    loader = SeededLoader(dataset, 3, EpochSampler(dataset))
    loader.set_epoch(1)
    whole = indices(loader)
    loader.set_epoch(0)
    dataset.asked.clear()
    assert indices(epoch_batches(loader, 1, start)) == whole[start:]
    assert dataset.asked == (PROBED if start else []) + sum(whole[start:], [])


@pytest.mark.parametrize('workers', [0, 2])
def test_a_users_loader_skips_indices(dataset, workers):
    sampler = DistributedSampler(dataset, num_replicas=2, rank=1)
    loader = DataLoader(dataset, 2, sampler=sampler, num_workers=workers)
    sampler.set_epoch(3)
    whole = indices(loader)
    sampler.set_epoch(0)
    dataset.asked.clear()
    # Recorded and not made errors: the workers inherit the filters.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        entered = indices(epoch_batches(loader, 3, 1))
    assert caught == []
    assert entered == whole[1:]
    assert sampler.epoch == 3
    if workers == 0:
        assert dataset.asked == PROBED + sum(whole[1:], [])
    assert indices(loader) == whole
    assert indices(epoch_batches(loader, 3, 7)) == []


def test_a_users_random_sampler_with_its_generator(dataset):
    def loader():
        generator = torch.Generator().manual_seed(8)
        return DataLoader(dataset, 3, sampler=RandomSampler(dataset, generator=generator))

    assert indices(epoch_batches(loader(), 0, 2)) == indices(loader())[2:]


def test_a_users_loader_keeps_its_options(dataset):
    loader = DataLoader(
        dataset, 5, collate_fn=noisy.mixup, num_workers=1, prefetch_factor=3, persistent_workers=True, timeout=60
    )
    (batch,) = epoch_batches(loader, 0, 1)
    assert batch.shape == (5, 6)


def test_a_users_loader_without_batches(dataset):
    loader = DataLoader(dataset, batch_size=None)
    assert [int(index) for index, _ in epoch_batches(loader, 0, 7)] == [7, 8, 9]
    assert dataset.asked == [*PROBED, 7, 8, 9]


class Own(DataLoader):
    """Iterates in a way of its own, so its batch sampler is not all there is."""

    def __iter__(self):
        return iter(range(4))


@pytest.mark.parametrize(
    ('loader', 'rest'),
    [
        (Own(noisy.Noisy()), [2, 3]),
        (DataLoader(noisy.NoisyStream(8), 2, collate_fn=len), [2, 2]),
        (SeededLoader(noisy.NoisyStream(8), 2, collate_fn=len), [2, 2]),
        (iter([10, 11, 12, 13]), [12, 13]),
    ],
    ids=['subclass', 'stream', 'seeded stream', 'iterator'],
)
def test_others_are_drained_with_one_warning(loader, rest, caplog):
    assert list(epoch_batches(loader, 0, 2)) == rest
    (record,) = caplog.records
    assert 'the first 2 batches are loaded and thrown away' in record.getMessage()


@pytest.mark.parametrize(('start', 'rest'), [(0, [10, 11]), (1, [11]), (5, [])])
def test_a_list_is_entered_at_once(start, rest, caplog):
    assert list(epoch_batches([10, 11], 0, start)) == rest
    assert not caplog.records


def test_negative_start():
    with pytest.raises(ValueError, match='start must be .* at least 0, but got -1'):
        epoch_batches([], 0, -1)


def test_set_epoch_tells_every_part_once():
    class Part:
        def __init__(self):
            self.told = []

        def set_epoch(self, epoch):
            self.told.append(epoch)

    class Loader(Part):
        pass

    loader = Loader()
    loader.sampler = Part()
    loader.batch_sampler = Part()
    loader.batch_sampler.sampler = loader.sampler
    set_epoch(loader, 6)
    assert [part.told for part in (loader, loader.sampler, loader.batch_sampler)] == [[6]] * 3
    set_epoch([1], 6)


def test_loader_seed(dataset):
    assert loader_seed(SeededLoader(dataset, seed=9)) == 9
    assert loader_seed(DataLoader(dataset)) is None


def of_loader(dataset, generator):
    return DataLoader(dataset, 3, shuffle=True, generator=generator)


def of_sampler(dataset, generator):
    return DataLoader(dataset, 3, sampler=RandomSampler(dataset, generator=generator))


def of_batch_sampler(dataset, generator):
    return DataLoader(dataset, batch_sampler=BatchSampler(RandomSampler(dataset, generator=generator), 3, False))


def of_a_sampler_in_our_loader(dataset, generator):
    return SeededLoader(dataset, 3, RandomSampler(dataset, generator=generator))


def saved(reader, tmp_path):
    """What a checkpoint would give back of the state of ``reader``."""
    torch.save(reader.state_dict(), tmp_path / 'state.pth')
    return torch.load(tmp_path / 'state.pth', weights_only=True)


@pytest.mark.parametrize('build', [of_loader, of_sampler, of_batch_sampler, of_a_sampler_in_our_loader])
def test_a_loaders_own_generator_is_brought_back_from_a_file(dataset, build, tmp_path):
    reader = Reader(build(dataset, torch.Generator().manual_seed(8)))
    list(reader.begin(0))  # the first epoch moves the generator on
    reader.close()
    between = saved(reader, tmp_path)
    batches = reader.begin(1)
    second = [next(batches)[0].tolist()]
    inside = saved(reader, tmp_path) if build is of_a_sampler_in_our_loader else None  # others are read ahead of
    second += indices(batches)
    other = Reader(build(dataset, torch.Generator().manual_seed(9)))
    other.load_state_dict(between)
    assert indices(other.batches(1)) == second
    if inside is not None:
        other = Reader(build(dataset, torch.Generator().manual_seed(9)))
        other.load_state_dict({**inside, 'batches': 1})
        assert indices(other.batches(1)) == second[1:]


class Remembers:
    """A loader with a place of its own, which is told the epoch as well."""

    def __init__(self):
        self.at, self.told = 0, []

    def __iter__(self):
        while self.at < 4:
            self.at += 1
            yield self.at - 1
        self.at = 0

    def __len__(self):
        return 4

    def set_epoch(self, epoch):
        self.told.append(epoch)

    def state_dict(self):
        return {'at': self.at}

    def load_state_dict(self, state):
        self.at = state['at']


@pytest.mark.parametrize('kind', [Reader, IterLoader])
def test_a_loader_with_a_state_is_given_back_what_it_said_and_the_epoch(kind):
    reader = kind(Remembers())
    batches = reader.begin(3)
    given = (lambda: next(reader)) if kind is IterLoader else (lambda: next(batches))
    assert [given(), given()] == [0, 1]
    assert reader.dataloader.told == [3]
    state = reader.state_dict(2)
    assert state['loader'] == {'at': 2}
    other = kind(Remembers())
    other.load_state_dict(state)
    assert list(other.batches(3)) == [2, 3]
    assert other.dataloader.told == [3]  # its shuffling may follow from it
