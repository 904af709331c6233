import random

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from runnerkit.data.loader_state import LoaderState, same_state
from runnerkit.data.probe import can_be_probed, samples_repeat
from runnerkit.utils.seed import rng_state


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


class Counts(Draws):
    """Its samples depend on an attribute that changes."""

    calls = 0

    def __getitem__(self, index):
        self.calls += 1
        return torch.tensor([index, self.calls])


@pytest.mark.parametrize(
    'dataset, repeats', [(Draws(), True), (Broken(), True), (Remembers(), False), (Counts(), False)]
)
def test_whether_samples_repeat_and_random_states_are_as_they_were(dataset, repeats):
    state = LoaderState(DataLoader(dataset, 2))
    before = [rng_state(), state.states()]
    assert samples_repeat(dataset, state) is repeats
    assert same_state([rng_state(), state.states()], before)


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
