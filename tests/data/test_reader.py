import warnings
from pathlib import Path

import pytest
import torch
from runnerkit.data.position import (
    epoch_batches,
    generator_states,
    loader_seed,
    loader_state,
    set_epoch,
    set_generator_states,
)
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler

from runnerkit.data.loader import SeededLoader
from runnerkit.data.sampler import EpochSampler
from runnerkit.utils.user_files import module_of_file

noisy = module_of_file(str(Path(__file__).with_name('noisy_datasets.py')))


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
    assert dataset.asked == sum(whole[start:], [])


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
        assert dataset.asked == sum(whole[1:], [])
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
    assert dataset.asked == [7, 8, 9]


class Own(DataLoader):
    """Iterates in a way of its own, so its batch sampler is not all there is."""

    def __iter__(self):
        return iter(range(4))


@pytest.mark.parametrize(
    ('loader', 'rest'),
    [
        ([10, 11, 12, 13], [12, 13]),
        (Own(noisy.Noisy()), [2, 3]),
        (DataLoader(noisy.NoisyStream(8), 2, collate_fn=len), [2, 2]),
        (SeededLoader(noisy.NoisyStream(8), 2, collate_fn=len), [2, 2]),
    ],
    ids=['list', 'subclass', 'stream', 'seeded stream'],
)
def test_others_are_drained_with_one_warning(loader, rest):
    with pytest.warns(UserWarning, match='first 2 are loaded and thrown away') as caught:
        assert list(epoch_batches(loader, 0, 2)) == rest
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert len(list(epoch_batches(loader, 0))) == 4


def test_starting_behind_the_end_of_a_drained_loader():
    with pytest.warns(UserWarning, match='thrown away'):
        assert list(epoch_batches([1, 2], 0, 5)) == []


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


@pytest.mark.parametrize('build', [of_loader, of_sampler, of_batch_sampler, of_a_sampler_in_our_loader])
def test_a_loaders_own_generators_are_brought_back_from_a_file(dataset, build, tmp_path):
    loader = build(dataset, torch.Generator().manual_seed(8))
    list(loader)  # the first epoch moves the generators on
    torch.save(generator_states(loader), tmp_path / 'states.pth')
    second = indices(loader)
    assert indices(loader) != second
    state = torch.load(tmp_path / 'states.pth', weights_only=True)
    assert len(state['own']) == 1  # of a generator that several parts share, one
    other = build(dataset, torch.Generator().manual_seed(9))
    set_generator_states(other, state)
    assert indices(epoch_batches(other, 0, 1)) == second[1:]
    assert len(indices(other)) == 4


def test_loaders_that_draw_from_the_process(dataset):
    loader = DataLoader(dataset, 3, shuffle=True)
    state = generator_states(loader)
    first = indices(loader)
    assert indices(loader) != first
    set_generator_states(loader, state)
    assert indices(loader) == first


def test_our_own_loaders_need_no_state_but_the_processs(dataset):
    assert generator_states(SeededLoader(dataset, 3, EpochSampler(dataset)))['own'] == []
    assert generator_states([1, 2])['own'] == []


def test_before_a_loader_is_known_only_the_processs_state_counts(dataset):
    state = generator_states(None)
    drawn = torch.rand(1)
    generator = torch.Generator().manual_seed(8)
    kept = generator.get_state()
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        set_generator_states(of_loader(dataset, generator), state)
    assert torch.equal(generator.get_state(), kept)
    assert torch.equal(torch.rand(1), drawn)


def test_states_of_a_loader_built_in_another_way_are_not_taken(dataset):
    generator = torch.Generator().manual_seed(8)
    state = generator_states(of_loader(dataset, generator))
    with pytest.warns(UserWarning, match='DataLoader and its samplers own 0 random generators, but the states of 1'):
        set_generator_states(DataLoader(dataset), state)
    kept = generator.get_state()
    with pytest.warns(UserWarning, match='own 1 random generators, but the states of 0'):
        set_generator_states(of_loader(dataset, generator), generator_states(DataLoader(dataset)))
    assert torch.equal(generator.get_state(), kept)


class Remembers:
    """A loader with a place of its own."""

    def __init__(self):
        self.at = 0

    def __iter__(self):
        while self.at < 4:
            self.at += 1
            yield self.at - 1

    def state_dict(self):
        return {'at': self.at}

    def load_state_dict(self, state):
        self.at = state['at']


def test_a_loader_with_a_state_is_given_back_what_it_said():
    loader = Remembers()
    batches = epoch_batches(loader, 0)
    assert [next(batches), next(batches)] == [0, 1]
    state = loader_state(loader)
    assert state == {'at': 2}
    assert list(epoch_batches(Remembers(), 0, 2, state)) == [2, 3]
    assert list(epoch_batches(Remembers(), 0, 0, {'at': 3})) == [0, 1, 2, 3]  # an epoch's beginning needs no state
    assert loader_state([1, 2]) is None
