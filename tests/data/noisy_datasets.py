"""Data sets and functions for the loader's tests, in a file that spawned workers can import."""

import random

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info


def draws():
    """Two draws of each global generator; an odd number of normals leaves numpy's pair half used."""
    return torch.tensor([
        random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), *torch.rand(2).tolist()
    ], dtype=torch.float64)  # fmt: skip


class Noisy(Dataset):
    """Samples of (index, random draws); remembers what it was asked for in this process."""

    def __init__(self, length=23):
        self.length = length
        self.asked = []

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        self.asked.append(index)
        return torch.tensor(index), draws()


class Forgetful(Noisy):
    """Remembers nothing."""

    def __getitem__(self, index):
        return torch.tensor(index), draws()


class Counting(Noisy):
    """Samples of (index, how many were asked for before)."""

    def __getitem__(self, index):
        self.asked.append(index)
        return torch.tensor(index), torch.tensor(len(self.asked))


class Batched(Noisy):
    """Has its own way to make many samples at once."""

    def __getitems__(self, indices):
        raise AssertionError('samples are seeded one by one')


class Breaking(Noisy):
    def __getitem__(self, index):
        draws()
        raise LookupError(f'sample {index} is broken')


class Nesting(Noisy):
    """Draws, iterates an inner seeded loader, draws again."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def __getitem__(self, index):
        before = draws()
        if self.inner is not None:
            list(self.inner)
        return before, draws()


class Images(Dataset):
    """Normalises large images with torch, whose sums depend on the number of threads."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        image = torch.rand(700, 1100)
        return (image - image.mean()) / image.std()


class NoisyStream(IterableDataset):
    """Every worker gives its share of the numbers below ``length`` with draws."""

    def __init__(self, length=12):
        self.length = length

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(worker, self.length, workers):
            yield torch.tensor(index), draws()


class InitSeen(Noisy):
    """Gives what ``worker_init_fn`` wrote into this worker's copy."""

    label = -1

    def __getitem__(self, index):
        return self.label


def label_worker(worker_id):
    get_worker_info().dataset.label = worker_id + 10


def label_seed(worker_id):
    get_worker_info().dataset.label = torch.initial_seed()


def mixup(samples):
    """A collate function that draws."""
    return torch.stack([noise for _, noise in samples]) * torch.rand(1) + np.random.rand() + random.random()
