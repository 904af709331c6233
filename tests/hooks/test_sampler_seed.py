"""Samplers are told the epoch."""

from support import Noisy, tiny_runner
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from runnerkit.hooks import DistSamplerSeedHook


class Sampler(SequentialSampler):
    def __init__(self, data):
        super().__init__(data)
        self.epochs = []

    def set_epoch(self, epoch):
        self.epochs.append(epoch)


def epochs_told(make):
    data = Noisy(8)
    sampler = Sampler(data)
    hook = DistSamplerSeedHook()
    runner = tiny_runner(max_epochs=2)
    runner.data_loader = make(data, sampler)
    for runner._epoch in range(3):
        hook.before_epoch(runner)
    return sampler.epochs


def test_the_loaders_sampler():
    assert epochs_told(lambda data, sampler: DataLoader(data, 4, sampler=sampler)) == [0, 1, 2]


def test_the_batch_samplers_sampler():
    assert epochs_told(lambda data, sampler: DataLoader(data, batch_sampler=BatchSampler(sampler, 4, False))) == [
        0,
        1,
        2,
    ]


def test_other_loaders_are_left_alone():
    assert epochs_told(lambda data, sampler: [1]) == []
