import random
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from runnerkit.data.held import Held, same_state
from runnerkit.data.probe import can_be_probed, probe
from runnerkit.data.reader import Reader
from runnerkit.utils.seed import rng_state
from runnerkit.utils.user_files import module_of_file

noisy = module_of_file(str(Path(__file__).with_name('noisy_datasets.py')))


class Draws(Dataset):
    """Samples with a draw of a generator of its own, and one of the process's."""

    def __init__(self):
        self.rng = random.Random(1)

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.tensor([index, self.rng.random(), random.random()])


class Broken(Draws):
    def __getitem__(self, index):
        self.rng.random()
        raise KeyError(index)


class Remembers(Draws):
    """Its samples depend on how much of a file was read."""

    def __init__(self):
        super().__init__()
        self.file = open(__file__, 'rb')  # noqa: SIM115

    def __getitem__(self, index):
        self.file.read(1)
        return torch.tensor([index, self.file.tell()])


@pytest.mark.parametrize('dataset', [Draws(), Broken(), noisy.Counting(6)])
def test_it_leaves_everything_as_it_was(dataset):
    loader = DataLoader(dataset, 2)
    held = Held(loader)
    before = [rng_state(), held.states()]
    assert probe(dataset, held, Reader(loader).state()) == []
    assert same_state([rng_state(), held.states()], before)


def test_what_a_sample_remembers_is_told():
    loader = DataLoader(Remembers(), 2)
    (text,) = probe(loader.dataset, Held(loader), Reader(loader).state())
    assert text.startswith('a sample read twice differs')
    assert 'Remembers has state that checkpoints do not hold' in text


def test_attributes_that_earlier_checkpoints_lack_are_told():
    def found(dataset, **changed):
        loader = DataLoader(dataset, 2)
        reader = Reader(loader)
        next(reader.batches(0))
        state = reader.state()
        vars(state).update(changed)
        other = DataLoader(type(dataset)(6), 2)
        held = Held(other)
        held.restore(state.held)
        said = probe(other.dataset, held, state)
        assert other.dataset.asked == state.held.get('loader.dataset.asked', {'value': []})['value']
        return said

    earlier = dict(of_files=False, held={})
    assert found(noisy.Counting(6)) == []
    (text,) = found(noisy.Counting(6), **earlier)
    assert 'its samples depend on loader.dataset.asked, which starts over' in text
    assert found(noisy.Noisy(6), **earlier) == []  # its samples do not depend on what it was asked for


@pytest.mark.parametrize(
    'loader, can',
    [
        (DataLoader(Draws(), 2), True),
        (DataLoader(Draws(), 2, num_workers=1), False),
        (DataLoader(TensorDataset(torch.zeros(4)), 2), False),
        ([1, 2], False),
    ],
)
def test_where_it_is_possible_and_of_use(loader, can):
    assert can_be_probed(loader) == can
