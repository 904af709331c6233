"""Typical data sets."""

import functools
import os
import random
import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset, default_collate, get_worker_info

#: Lengths of a training and a validation data set; batches have 4 samples.
LENGTH, SHORT = 20, 12


def point(i):
    """An input that is unique to its index, and its target."""
    return torch.tensor([np.sin(i), np.cos(i), i / LENGTH, 1.0], dtype=torch.float32), torch.tensor([float(i % 2)])


def shifted(i, shift):
    x, y = point(i)
    return x + shift, y


def points(length=LENGTH):
    return TensorDataset(*(torch.stack(part) for part in zip(*map(point, range(length)), strict=True)))


def torchs():
    return float(torch.rand(()))


def pythons():
    return random.random()


def numpys():
    return float(np.random.rand())


def everybodys():
    return torchs() + pythons() + numpys()


class Drawn:
    """A source of numbers with its own generator, from the given library."""

    def __init__(self, library, seed=3):
        self.generator = {
            'torch': torch.Generator().manual_seed(seed),
            'python': random.Random(seed),
            'numpy': np.random.default_rng(seed),
            'RandomState': np.random.RandomState(seed),
        }[library]

    def __call__(self):
        if isinstance(self.generator, torch.Generator):
            return float(torch.rand((), generator=self.generator))
        return float(self.generator.random())

    def order(self, n):
        if isinstance(self.generator, torch.Generator):
            return torch.randperm(n, generator=self.generator).tolist()
        if isinstance(self.generator, random.Random):
            return self.generator.sample(range(n), n)
        return self.generator.permutation(n).tolist()


class Noisy(Dataset):
    """Points with noise: ``draw()`` for each sample."""

    def __init__(self, draw=everybodys, length=LENGTH):
        self.draw = draw
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        if not 0 <= i < self.length:
            raise IndexError(i)
        return shifted(i, self.draw())


class OwnGenerator(Dataset):
    """Augments with a generator that it stores as an attribute."""

    def __init__(self, library, generator=None):
        self.rng = Drawn(library).generator if generator is None else generator

    def __len__(self):
        return LENGTH

    def __getitem__(self, i):
        if isinstance(self.rng, torch.Generator):
            return shifted(i, float(torch.rand((), generator=self.rng)))
        return shifted(i, float(self.rng.random()))


#: A generator that belongs to no object.
OF_THE_MODULE = random.Random(3)


class ClassGenerator(Noisy):
    """All instances share the generator of the class."""

    rng = random.Random(3)

    def __getitem__(self, i):
        return shifted(i, self.rng.random())


class ManyAtOnce(Noisy):
    """Returns all samples of a batch in one call, as torch allows."""

    def __getitems__(self, indices):
        shift = self.draw()
        return [shifted(i, shift) for i in indices]


class Counting(Noisy):
    """Warms up its augmentation by counting its calls."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def __getitem__(self, i):
        self.calls += 1
        return shifted(i, self.calls / 100)


class Mosaic(Noisy):
    """Mixes each sample with one of the last four, as mosaic caches do."""

    def __init__(self):
        super().__init__()
        self.results = []

    def __getitem__(self, i):
        x, y = point(i)
        self.results = [*self.results, x][-4:]
        return (x + random.choice(self.results)) / 2, y


class Memoized(Noisy):
    """Augments each sample once, at its first use."""

    def __init__(self):
        super().__init__()
        self.shift = functools.lru_cache(maxsize=None)(lambda i: random.random())

    def __getitem__(self, i):
        return shifted(i, self.shift(i))


class LazyFile(Noisy):
    """Opens its file at the first sample, once in each process, as h5py and lmdb data sets do."""

    def __init__(self):
        super().__init__()
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.write(bytes(range(LENGTH)))
        self.path, self.file = file.name, None

    def __getitem__(self, i):
        if self.file is None:
            self.file = open(self.path, 'rb')  # noqa: SIM115 (kept open)
            os.unlink(self.path)
        self.file.seek(int(i))
        return point(self.file.read(1)[0])


class OneAfterTheOther(LazyFile):
    """Reads its file sequentially, whatever the index, and restarts at the end."""

    def __getitem__(self, i):
        if self.file is None:
            super().__getitem__(0)
        text = self.file.read(1)
        if not text:
            self.file.seek(0)
            text = self.file.read(1)
        return point(text[0])


class Curriculum(Noisy):
    """Gets harder when a hook says so."""

    difficulty = 0.0

    def __getitem__(self, i):
        return shifted(i, self.difficulty)


class Shrinking(Noisy):
    """One batch less in each epoch; a hook sets the epoch."""

    epoch = 0

    def __len__(self):
        return LENGTH - 4 * self.epoch

    def __getitem__(self, i):
        return point(i)


class Reordered(Noisy):
    """A list that a hook shuffles in place at each epoch's beginning."""

    def __init__(self):
        super().__init__()
        self.items = list(range(LENGTH))

    def __getitem__(self, i):
        return point(self.items[i])


class WithState(Counting):
    """Counts its calls, and can save the count."""

    def state_dict(self):
        return {'calls': self.calls}

    def load_state_dict(self, state):
        self.calls = state['calls']


class Stream(IterableDataset):
    """Points in order, sharded among the workers."""

    def __init__(self, draw=lambda: 0.0):
        self.draw = draw

    def __iter__(self):
        worker = get_worker_info()
        start, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for i in range(start, LENGTH, step):
            yield shifted(i, self.draw())


class ShuffleBuffer(Stream):
    """Keeps eight samples and returns a random one."""

    def __init__(self, rng=random):
        super().__init__()
        self.rng = rng

    def __iter__(self):
        kept = []
        for sample in super().__iter__():
            kept.append(sample)
            if len(kept) == 8:
                yield kept.pop(self.rng.randrange(8))
        self.rng.shuffle(kept)
        yield from kept


class GoesOn(Stream):
    """An endless stream, 18 samples per pass, which continues where the last pass stopped."""

    def __init__(self):
        super().__init__()
        self.position = 0

    def __iter__(self):
        for _ in range(18):
            self.position += 1
            yield point(self.position)


class Grouping(Stream):
    """detectron2's aspect-ratio grouping: samples of an incomplete batch wait for the next pass."""

    def __init__(self):
        super().__init__()
        self.buckets = [[], [], []]

    def __iter__(self):
        for sample in super().__iter__():
            bucket = self.buckets[int(10 * sample[0][2]) % 3]
            bucket.append(sample)
            if len(bucket) == 4:
                yield default_collate(bucket)
                del bucket[:]


class OwnBatches(Stream):
    """Makes its batches itself, of two to four samples."""

    def __iter__(self):
        start = 0
        while start < LENGTH:
            size = 2 + start % 3
            yield default_collate([point(i) for i in range(start, start + size)])
            start += size


class StreamWithState(Stream):
    """Can save its position and resume there."""

    def __init__(self):
        super().__init__()
        self.done = 0

    def __iter__(self):
        while self.done < LENGTH:
            self.done += 1
            yield point(self.done)
        self.done = 0

    def state_dict(self):
        return {'done': self.done}

    def load_state_dict(self, state):
        self.done = state['done']
