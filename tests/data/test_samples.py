import pickle
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

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
