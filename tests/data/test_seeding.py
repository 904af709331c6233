"""Seeds of samples and private streams; what workers see of a data set."""

import pickle
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset

from runnerkit.data import build_dataloader, seeding
from runnerkit.data.sampler import SampleBatch
from runnerkit.data.seeding import (
    SeededSamples,
    SeededStream,
    WorkerInit,
    as_is,
    is_pure,
    mix_seed,
    private_streams,
    sample_seed,
    seed_streams,
    seeded_iteration,
)
from runnerkit.utils.user_files import module_of_file

noisy = module_of_file(str(Path(__file__).with_name('noisy_datasets.py')))
draws = noisy.draws


@pytest.fixture(autouse=True)
def _seeded():
    threads = torch.get_num_threads()
    random.seed(5)
    np.random.seed(6)
    torch.manual_seed(7)
    yield
    torch.set_num_threads(threads)


def test_splitmix_reference_values():
    # The sequence of the published C code for the seed 1234567.
    base = 1234567
    assert [sample_seed(base, position) for position in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_seeds_differ_wherever_a_part_differs():
    bases = {mix_seed(seed, epoch) for seed in range(8) for epoch in range(8)}
    seeds = {sample_seed(base, position) for base in bases for position in range(64)}
    assert len(seeds) == 8 * 8 * 64
    assert mix_seed(0, 1) != mix_seed(1, 0)
    assert 0 <= mix_seed(-1, 2**70) < 2**64


def test_streams_follow_from_the_seed():
    with private_streams():
        seed_streams(2**64 - 1)
        first = draws()
        seed_streams(mix_seed(1))
        other = draws()
        seed_streams(2**64 - 1)
        assert torch.equal(first, draws())
        assert (first != other).all()


def test_torch_and_numpy_do_not_draw_the_same_numbers():
    with private_streams():
        seed_streams(mix_seed(3))
        ours = (torch.randint(2**31, (4,)).tolist(), np.random.randint(2**31, size=4).tolist())
    assert set(ours[0]).isdisjoint(ours[1])


def test_the_outer_streams_notice_nothing():
    # The first draws leave the second of numpy's and of python's normal pairs waiting.
    expected = [draws() for _ in range(3)]
    random.seed(5), np.random.seed(6), torch.manual_seed(7)
    seen = []
    for _ in range(3):
        seen.append(draws())
        with private_streams():
            seed_streams(1)
            draws()
    assert all(torch.equal(a, b) for a, b in zip(expected, seen, strict=True))


@pytest.mark.parametrize('waiting', [False, True])
def test_numpy_keeps_the_waiting_normal(waiting):
    if waiting:
        np.random.randn()
    before = np.random.get_state(legacy=False)
    with private_streams():
        seed_streams(1)
        np.random.randn(2 if waiting else 3)
    after = np.random.get_state(legacy=False)
    assert after['has_gauss'] == before['has_gauss'] == waiting
    assert after['gauss'] == before['gauss']


def test_a_foreign_bit_generator_is_put_back():
    mine = np.random.get_bit_generator()
    foreign = np.random.PCG64(3)
    np.random.set_bit_generator(foreign)
    try:
        np.random.randn()
        state = np.random.get_state(legacy=False)
        with private_streams():
            seed_streams(1)
            np.random.seed(4)  # what a data set may do
        assert np.random.get_bit_generator() is foreign
        assert np.random.get_state(legacy=False) == state
    finally:
        np.random.set_bit_generator(mine)


def test_restored_after_an_exception():
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    torch.set_num_threads(2)

    def fail():
        assert torch.get_num_threads() == 1
        seed_streams(1)
        raise KeyError(draws())

    with pytest.raises(KeyError), private_streams():
        fail()
    assert torch.get_num_threads() == 2
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_nested_without_a_waiting_normal():
    with private_streams():
        seed_streams(1)
        expected = np.random.rand(2).tolist()
        seed_streams(1)
        first = np.random.rand()
        with private_streams():
            seed_streams(2)
        assert [first, np.random.rand()] == expected


def test_nested():
    with private_streams():
        seed_streams(1)
        expected = [draws(), draws()]
    with private_streams():
        seed_streams(1)
        first = draws()
        with private_streams():
            seed_streams(2)
            draws()
        assert torch.equal(torch.stack(expected), torch.stack([first, draws()]))


def test_seeded_iteration_is_a_function_of_its_base_whoever_draws_between():
    def items():
        while True:
            yield draws()

    def take(base):
        stream = seeded_iteration(items(), base)
        taken = []
        for _ in range(3):
            taken.append(next(stream))
            draws()
        return torch.stack(taken)

    first, second, other = take(1), take(1), take(2)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert len({row.sum().item() for row in first}) == 3


def test_seeded_iteration_seeds_iter_itself_and_ends():
    class Shuffled:
        def __iter__(self):
            return iter(torch.randperm(50).tolist())

    state = torch.get_rng_state()
    orders = [list(seeded_iteration(Shuffled(), base)) for base in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(50))
    assert torch.equal(state, torch.get_rng_state())


# --- what a loader's workers see --------------------------------------------------------------------------------------


def draws_at(*positions, seed=1, epoch=0, dataset=None):
    samples = SeededSamples(dataset or noisy.Noisy(), seed, as_is)
    made = samples.__getitems__(SampleBatch([5] * len(positions), epoch, positions))
    return [noise for _, noise in made]


def test_a_sample_depends_on_its_position_and_not_on_its_neighbours():
    first, second = draws_at(4, 9)
    assert torch.equal(draws_at(9)[0], second)
    assert torch.equal(draws_at(9, 4, 0)[1], first)
    for other in (draws_at(5)[0], draws_at(4, seed=2)[0], draws_at(4, epoch=1)[0]):
        assert (other != first).all()


def test_samples_are_collated_inside():
    samples = SeededSamples(noisy.Noisy(), 1, noisy.mixup)
    batch = SampleBatch([1, 2], 0, range(2))
    state = torch.get_rng_state()
    assert torch.equal(samples.__getitems__(batch), samples.__getitems__(batch))
    assert torch.equal(torch.get_rng_state(), state)


def test_as_many_positions_as_indices():
    with pytest.raises(ValueError, match='zip'):
        SeededSamples(noisy.Noisy(), 1, as_is).__getitems__(SampleBatch([1, 2], 0, range(3)))


# --- samples that draw nothing ----------------------------------------------------------------------------------------

DRAWS = {
    'torch': lambda: torch.rand(()).item(),
    'numpy': np.random.rand,
    'a normal of numpy': np.random.randn,
    'python': random.random,
    'a normal of python': lambda: random.gauss(0, 1),
    'none': lambda: 0.0,
}


class Sometimes(noisy.Noisy):
    """Samples of (index, a draw of one generator), if ``when(epoch, index)``; else nothing is drawn."""

    def __init__(self, kind, when, length=90):
        super().__init__(length)
        self.kind, self.when = kind, when
        self.epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def __getitem__(self, index):
        self.asked.append(index)
        return index, DRAWS[self.kind]() if self.when(int(self.epoch), index) else 0.0


def expected_of(data, epoch, start=0, seed=3):
    """Each sample under its own seed, for an order that is the data set's."""
    values = []
    for index in range(start, len(data)):
        with private_streams():
            seed_streams(sample_seed(mix_seed(seed, epoch), index))
            values.append(data[index][1])
    return torch.tensor(values, dtype=torch.float64)


def values_of(batches):
    return torch.cat([values for _, values in batches])


@pytest.mark.parametrize('batch_size', [1, 7, 32])
@pytest.mark.parametrize(
    'when',
    [
        lambda epoch, index: True,
        lambda epoch, index: index in (5, 40, 41, 63, 88),
        lambda epoch, index: epoch == 1 and index % 2,
        lambda epoch, index: epoch == 1 and index == 70,
    ],
    ids=['always', 'some samples', 'later', 'one sample'],
)
@pytest.mark.parametrize('kind', [*DRAWS])
def test_a_sample_draws_under_its_own_seed_whatever_others_do(kind, when, batch_size):
    data = Sometimes(kind, when)
    loader = build_dataloader(data, batch_size, 0, shuffle=False, seed=3)
    for epoch in range(3):
        data.epoch.fill_(epoch)
        assert torch.equal(values_of(loader.enter(epoch)), expected_of(data, epoch))


def in_the_second_epoch(epoch, index):
    return epoch == 1 and index % 40 == 35


@pytest.mark.parametrize('persistent', [False, True])
@pytest.mark.parametrize('kind', ['torch', 'numpy', 'python'])
def test_a_worker_draws_the_same(kind, persistent):
    data = Sometimes(kind, in_the_second_epoch)
    loader = build_dataloader(data, 20, 2, shuffle=False, seed=3, persistent_workers=persistent)
    for epoch in range(3):
        data.epoch.fill_(epoch)
        loader.set_epoch(epoch)
        assert torch.equal(values_of(loader), expected_of(data, epoch))


@pytest.mark.parametrize('kind', ['torch', 'numpy', 'python'])
def test_an_epoch_that_is_entered_in_its_middle_draws_the_same(kind):
    data = Sometimes(kind, in_the_second_epoch)
    data.epoch.fill_(1)
    fresh = build_dataloader(data, 20, 0, shuffle=False, seed=3)
    assert torch.equal(values_of(fresh.enter(1, 2)), expected_of(data, 1, 40))


@pytest.mark.parametrize('kind', ['numpy', 'python'])
@pytest.mark.parametrize(
    'drawing, asked',
    [((44, 70), [*range(50), *range(40, 90)]), (range(90), [*range(90)]), ((2, 70), [*range(90)])],
)
def test_a_batch_is_made_again_at_most_once(drawing, asked, kind):
    data = Sometimes(kind, lambda epoch, index: index in drawing)
    list(build_dataloader(data, 10, 0, shuffle=False))
    assert data.asked == asked


def test_an_error_of_a_draw_that_was_not_seeded_is_none():
    class Picky(Sometimes):
        def __getitem__(self, index):
            found = super().__getitem__(index)
            if index == 70 and found[1] != right:
                raise ValueError('a draw of nobody')
            return found

    data = Sometimes('python', lambda epoch, index: index == 70)
    right = expected_of(data, 0)[70]
    picky = Picky('python', data.when)
    assert values_of(build_dataloader(picky, 10, 0, shuffle=False, seed=3))[70] == right


def test_an_error_of_a_sample_that_draws_nothing_is_raised_at_once():
    class Late(Sometimes):
        def __getitem__(self, index):
            found = super().__getitem__(index)
            return found if index != 45 else {}[index]

    data = Late('none', lambda epoch, index: False)
    with pytest.raises(KeyError) as caught:
        list(build_dataloader(data, 10, 0, shuffle=False))
    assert data.asked == [*range(46)]
    assert caught.value.__notes__ == ['sample 45 of the data set Late']


def shaken(samples):
    """Draws in the collate function only."""
    return torch.tensor([random.random(), np.random.rand(), torch.rand(())]), samples


@pytest.mark.parametrize('dataset', [Sometimes('none', lambda epoch, index: True), range(90)])
@pytest.mark.parametrize('batch_size', [1, 20])
def test_a_collate_function_draws_from_the_streams_of_the_last_sample(dataset, batch_size):
    ends = range(batch_size - 1, 90, batch_size)
    batches = build_dataloader(dataset, batch_size, 0, shuffle=False, seed=3, drop_last=True, collate_fn=shaken)
    for end, (noise, _) in zip(ends, batches, strict=True):
        with private_streams():
            seed_streams(sample_seed(mix_seed(3, 0), end))
            assert torch.equal(noise, shaken([])[0])


def test_generators_are_left_alone_where_nothing_draws(monkeypatch):
    seeds = []
    seed_them = seeding.seed_streams
    monkeypatch.setattr(seeding, 'seed_streams', lambda seed: (seeds.append(seed), seed_them(seed)))
    loader = build_dataloader(Sometimes('torch', lambda epoch, index: True), 30, 0, shuffle=False)
    for _ in range(2):
        list(loader)
    assert len(seeds) == 30 + 2 + 3  # the first batch, and once each of the others, also in the second pass
    seeds.clear()
    list(build_dataloader(TensorDataset(torch.zeros(90)), 30, 0))
    assert seeds == []


class Doubled(list):
    """A list that draws."""

    def __getitem__(self, index):
        return super().__getitem__(index) + random.random()


def test_only_known_data_sets_are_known_to_draw_nothing():
    pure = TensorDataset(torch.zeros(4))
    assert is_pure(ConcatDataset([pure, Subset([1.0, 2.0], [1])]))
    assert not is_pure(Doubled([1.0]))
    assert not is_pure(ConcatDataset([pure, noisy.Noisy(4)]))
    first = next(iter(build_dataloader(Doubled([0.0] * 4), 4, 0)))
    assert len(set(first.tolist())) == 4


def test_stream_keeps_its_epoch_when_pickled():
    stream = SeededStream(noisy.NoisyStream(3), 1, 0)
    stream.set_epoch(6)
    other = pickle.loads(pickle.dumps(stream))
    assert other.epoch == 6
    assert torch.equal(next(iter(other))[1], next(iter(stream))[1])


@pytest.mark.parametrize(('user_init', 'labels'), [(None, [-1, -1]), (noisy.label_worker, [10, 10])])
def test_worker_init(user_init, labels):
    class Wrapped(noisy.InitSeen):
        dataset = noisy.InitSeen()

        def __getitem__(self, index):
            return self.dataset[index]

    loader = DataLoader(Wrapped(2), 2, num_workers=1, worker_init_fn=WorkerInit(user_init))
    assert next(iter(loader)).tolist() == labels


def ends():
    return next(iter(()))


class Ends(noisy.Noisy):
    """Ends at the fifth sample."""

    def __getitem__(self, index):
        return super().__getitem__(index) if index != 5 else ends()


class EndsAtOnce(Ends):
    def __getitems__(self, indices):
        return [self[i] for i in indices]


def collate(samples):
    return ends() if any(index == 5 for index, _ in samples) else samples


def ends_in_worker(worker_id):
    ends()


@pytest.mark.parametrize('workers', [0, 2])
@pytest.mark.parametrize(
    ('dataset', 'options', 'named'),
    [
        (Ends(), {}, 'sample 5 of the data set Ends'),
        (EndsAtOnce(), {}, 'sample 5 of the data set EndsAtOnce'),
        (ConcatDataset([noisy.Noisy(3), Subset(Ends(), range(2, 9))]), {}, 'sample 6 of the data set ConcatDataset'),
        (noisy.Noisy(), {'collate_fn': collate}, 'a batch of the samples 4, 5 of the data set Noisy'),
        (noisy.NoisyStream(8), {'collate_fn': lambda samples: ends()}, 'collate_fn'),
        (noisy.Noisy(), {'worker_init_fn': ends_in_worker}, 'worker_init_fn'),
    ],
)
def test_a_stop_iteration_in_a_sample_is_an_error_that_names_it(dataset, options, named, workers):
    """It would end the pass, as if it were complete."""
    if 'worker_init_fn' in options and not workers:
        assert len(list(build_dataloader(dataset, 2, 0, **options))) == 12
        return
    with pytest.raises(RuntimeError, match=f'{named}: StopIteration, probably from next'):
        list(build_dataloader(dataset, 2, workers, shuffle=False, **options))


class Breaks(noisy.Noisy):
    """Its fifth sample is damaged."""

    def __getitem__(self, index):
        if index == 5:
            raise OSError('damaged')
        return super().__getitem__(index)


def test_an_error_in_a_sample_names_the_sample():
    with pytest.raises(OSError, match='damaged') as caught:
        list(build_dataloader(Breaks(), 2, 0, shuffle=False))
    assert caught.value.__notes__ == ['sample 5 of the data set Breaks']
