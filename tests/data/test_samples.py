import pickle
from pathlib import Path

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset

from runnerkit.data import build_dataloader
from runnerkit.data.sampler import SampleBatch
from runnerkit.data.samples import SeededSamples, SeededStream, WorkerInit, as_is
from runnerkit.utils.user_files import module_of_file

noisy = module_of_file(str(Path(__file__).with_name('noisy_datasets.py')))


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
