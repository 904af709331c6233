from pathlib import Path

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, TensorDataset

from runnerkit.data import build_dataloader
from runnerkit.data.kinds import (
    draws_in_workers,
    has_state,
    is_cheap_to_enter,
    is_empty,
    is_in_order,
    is_reread_by_itself,
    length_of,
    loader_facts,
    loader_seed,
    lost_at_resume,
    order_of,
    set_epoch,
    shuffle_buffer_of,
    workers_live,
)
from runnerkit.data.loader import SeededLoader
from runnerkit.data.sampler import EpochSampler
from runnerkit.utils.user_files import module_of_file

noisy = module_of_file(str(Path(__file__).with_name('noisy_datasets.py')))


class Own(DataLoader):
    """Iterates in a way of its own, so its batch sampler is not all there is."""

    def __iter__(self):
        return iter(range(4))


class Keeps:
    """A loader that keeps its place itself."""

    def __len__(self):
        return 3

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


class KeepsTorchs(DataLoader):
    """As torchdata's: a DataLoader that keeps its place."""

    state_dict, load_state_dict = Keeps.state_dict, Keeps.load_state_dict


class Numbers(IterableDataset):
    """A stream over another one, or without a place of its own."""

    def __init__(self, *rows):
        self.rows = rows

    def __iter__(self):
        return iter(range(6))


class KeepsNumbers(Numbers):
    state_dict, load_state_dict = Keeps.state_dict, Keeps.load_state_dict


class Buffer:
    """Hugging Face's, in small."""

    def __init__(self, buffer_size):
        self.buffer_size = buffer_size


Buffer.__module__ = 'datasets.iterable_dataset'


class OwnBuffer(Buffer):
    """Somebody else's, of which nothing is known."""


def pure():
    return TensorDataset(torch.arange(6.0))


def test_a_share_may_be_empty_where_the_loader_is_not():
    def share(number, **options):
        return build_dataloader(TensorDataset(torch.arange(number)), 2, 0, ranks=(2, 3), round_up=False, **options)

    assert [len(share(2)), len(share(3))] == [0, 1]
    assert not is_empty(share(2))
    assert is_empty([])
    assert is_empty(DataLoader(TensorDataset(torch.arange(1)), 2, drop_last=True))
    assert not is_empty(iter([]))  # nobody knows


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
    loader.batch_sampler.sampler = Part()
    set_epoch(loader, 7)
    assert loader.batch_sampler.sampler.told == [7]
    set_epoch([1], 6)

    class Stream(Part, IterableDataset):
        def __iter__(self):
            return iter([1])

    loader.dataset = Stream()
    set_epoch(loader, 8)
    assert loader.dataset.told == [8]
    loader.dataset = Part()  # one with indices gets its order from the sampler
    set_epoch(loader, 9)
    assert loader.dataset.told == []


def test_loader_seed():
    assert loader_seed(SeededLoader(noisy.Noisy(), seed=9)) == 9
    assert loader_seed(DataLoader(noisy.Noisy())) is None


@pytest.mark.parametrize(
    'loader, expected',
    [
        (build_dataloader(noisy.Noisy(6), 4, 0, seed=3), (4, 2)),
        (build_dataloader(noisy.Noisy(6), 4, 0, seed=3, seeded=False), (4, 2)),
        (DataLoader(noisy.Noisy(6), 4, sampler=EpochSampler(range(6)), drop_last=True), (4, 1)),
        (DataLoader(noisy.Noisy(6), 4), None),
        (SeededLoader(noisy.Noisy(6), 4, RandomSampler(range(6))), None),
        (SeededLoader(noisy.Noisy(6), batch_sampler=BatchSampler(EpochSampler(range(6)), 4, False)), None),
        (Own(noisy.Noisy(6), 4, sampler=EpochSampler(range(6))), None),
        (DataLoader(noisy.Noisy(6), batch_size=None, sampler=EpochSampler(range(6))), None),
        (SeededLoader(noisy.NoisyStream(6), 4), None),
        ([1], None),
    ],
)
def test_orders_that_are_known(loader, expected):
    order = order_of(loader)
    assert (None if order is None else (order.batch_size, order.batches_from(0))) == expected


def test_about_a_loader():
    ours = loader_facts(build_dataloader(noisy.Noisy(6), 4, 0, seed=3, ranks=(1, 2)))
    assert ours == {
        'kind': 'SeededLoader',
        'dataset': 'Noisy',
        'length': 6,
        'batch_size': 4,
        'batches': 1,
        'workers': 0,
        'world_size': 2,
        'seed': 3,
        'shuffle': True,
        'order': 'randperm',
    }
    by_batches = BatchSampler(EpochSampler(range(6), order='feistel'), 4, False)
    assert loader_facts(SeededLoader(noisy.Noisy(6), batch_sampler=by_batches))['order'] == 'feistel'
    stream = loader_facts(DataLoader(noisy.NoisyStream(6), 2))
    assert (stream['length'], stream['batches'], stream['batch_size']) == (None, None, 2)
    assert loader_facts([1])['dataset'] is None


@pytest.mark.parametrize(
    'loader, length, cheap, state, draws',
    [
        ([1], 1, False, False, False),
        (iter([1]), None, False, False, False),
        (Keeps(), 3, False, True, False),
        (SeededLoader(noisy.Noisy(6), 2, num_workers=1), 3, True, False, False),
        (DataLoader(noisy.Noisy(6), 2, num_workers=1), 3, True, False, True),
        (DataLoader(noisy.Noisy(6), 2), 3, True, False, False),
        (DataLoader(pure(), 2, num_workers=1), 3, True, False, False),
        (DataLoader(pure(), 2, num_workers=1, collate_fn=len), 3, True, False, True),
        (DataLoader(noisy.NoisyStream(6), 2), None, False, False, False),
    ],
)
def test_kinds_of_loaders(loader, length, cheap, state, draws):
    found = length_of(loader), is_cheap_to_enter(loader), has_state(loader), draws_in_workers(loader)
    assert found == (length, cheap, state, draws)


def test_persistent_workers_live_from_the_first_pass_on():
    loader = DataLoader(pure(), 2, num_workers=1, persistent_workers=True)
    assert not workers_live(loader)
    iter(loader)
    assert workers_live(loader)
    assert not workers_live(DataLoader(pure(), 2, num_workers=1))


@pytest.mark.parametrize(
    'dataset, workers, texts',
    [
        (KeepsNumbers(Buffer(16)), 0, ['shuffle buffer of 16 samples is not saved']),
        (KeepsNumbers([Buffer(1)], KeepsNumbers(Buffer(9)), Buffer(3)), 0, ['shuffle buffer of 9 samples']),
        (KeepsNumbers(Buffer(16)), 1, ['shuffle buffer of 16 samples', 'may fail with an IndexError']),
        (KeepsNumbers(Buffer(1)), 1, ['may fail with an IndexError']),
        (KeepsNumbers(Buffer(1)), 0, []),
        (KeepsNumbers(OwnBuffer(16)), 1, []),
        (KeepsNumbers(), 1, []),
        (Numbers(Buffer(16)), 0, []),  # it is read again
        (pure(), 0, []),
    ],
)
def test_what_a_loader_that_keeps_its_place_in_a_stream_loses(dataset, workers, texts):
    found = lost_at_resume(KeepsTorchs(dataset, 2, num_workers=workers))
    assert [text in each for text, each in zip(texts, found, strict=True)] == [True] * len(texts)
    assert lost_at_resume(DataLoader(dataset, 2, num_workers=workers)) == []  # which is read again as well
    assert lost_at_resume(build_dataloader(dataset, 2, workers)) == []


def test_a_loader_that_reads_a_stream_again_by_itself():
    makers = (KeepsTorchs, DataLoader, build_dataloader)
    found = [
        [is_reread_by_itself(make(data(), 2, num_workers=0)) for make in makers]
        for data in (Numbers, KeepsNumbers, pure)
    ]
    assert found == [[True, False, False], [False] * 3, [False] * 3]


def test_a_search_for_a_buffer_comes_to_an_end():
    ring = KeepsNumbers()
    ring.rows = [ring, *map(KeepsNumbers, range(10_000))]
    assert shuffle_buffer_of(ring) is None


def test_loaders_in_order_are_those_that_torch_does_not_shuffle():
    data, shuffled = TensorDataset(torch.arange(4)), RandomSampler(range(4))
    assert is_in_order(DataLoader(data, 2))
    assert is_in_order(DataLoader(data, None))
    assert not is_in_order(DataLoader(data, 2, shuffle=True))
    assert not is_in_order(DataLoader(data, batch_sampler=BatchSampler(shuffled, 2, False)))  # beside an unused sampler
    assert not is_in_order(Own(data, 2))
    assert not is_in_order(DataLoader(Numbers(1, 2)))
    assert not is_in_order([1, 2])
