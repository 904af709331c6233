"""Typical samplers."""

import itertools
import random

import numpy as np
import torch
from loader_parts.data_sets import LENGTH, Drawn
from torch.utils.data import Sampler


class Own(Sampler):
    """An order from a generator that it stores."""

    def __init__(self, library):
        self.rng = Drawn(library).generator

    def __len__(self):
        return LENGTH

    def __iter__(self):
        order = list(range(LENGTH))
        if isinstance(self.rng, torch.Generator):
            order = torch.randperm(LENGTH, generator=self.rng).tolist()
        else:
            self.rng.shuffle(order)
        return iter(order)


class Wraps(Sampler):
    """A sampler inside a sampler, under an arbitrary name, like class-balanced and distributed wrappers."""

    def __init__(self, inner):
        self.wrapped = {'inner': inner}

    def __len__(self):
        return len(self.wrapped['inner'])

    def __iter__(self):
        return iter([*self.wrapped['inner']][::-1])


class CountsEpochs(Sampler):
    """Seeds its order with its own epoch counter."""

    def __init__(self):
        self.passes = 0

    def __len__(self):
        return LENGTH

    def __iter__(self):
        self.passes += 1
        return iter(random.Random(self.passes).sample(range(LENGTH), LENGTH))


class OfEpoch(Sampler):
    """A pure function of the epoch from ``set_epoch``, each index twice (repeated augmentation)."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return LENGTH

    def __iter__(self):
        order = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(self.epoch))
        return iter(order.repeat_interleave(2)[:LENGTH].tolist())


class Infinite(Sampler):
    """mmdet's infinite batch samplers: one endless generator, which all iterations share."""

    batch_size = 4

    def __init__(self):
        self.indices = self._endless()

    def _endless(self):
        generator = torch.Generator().manual_seed(3)
        while True:
            yield from torch.randperm(LENGTH, generator=generator).tolist()

    def __len__(self):
        return LENGTH // self.batch_size

    def __iter__(self):
        while True:
            yield [next(self.indices) for _ in range(self.batch_size)]


class Lazy(Sampler):
    """Draws each index on request."""

    def __len__(self):
        return LENGTH

    def __iter__(self):
        for _ in range(LENGTH):
            yield random.randrange(LENGTH)


class Grouped(Sampler):
    """mmdet's GroupSampler: numpy's global generator, all at once."""

    def __len__(self):
        return LENGTH

    def __iter__(self):
        groups = [np.random.permutation(np.arange(start, LENGTH, 2)) for start in range(2)]
        return iter(np.concatenate(groups).tolist())


class ClassAware(Sampler):
    """Cycles through the classes and, within each, through a list that is reshuffled at its end."""

    def __init__(self):
        self.classes = [list(range(k, LENGTH, 3)) for k in range(3)]
        self.at = [0, 0, 0]

    def __len__(self):
        return LENGTH

    def __iter__(self):
        for i in range(LENGTH):
            k = i % 3
            if self.at[k] == 0:
                random.shuffle(self.classes[k])
            yield self.classes[k][self.at[k]]
            self.at[k] = (self.at[k] + 1) % len(self.classes[k])


class Cycles(Sampler):
    """Repeats an order forever by ``itertools.cycle``; a pass is a part of it."""

    def __init__(self):
        self.order = itertools.cycle(random.sample(range(LENGTH), LENGTH - 3))

    def __len__(self):
        return LENGTH

    def __iter__(self):
        return itertools.islice(self.order, LENGTH)


class HardExamples(Sampler):
    """Draws by weights that a hook changes."""

    def __init__(self):
        self.weights = [1.0] * LENGTH

    def __len__(self):
        return LENGTH

    def __iter__(self):
        return iter(torch.multinomial(torch.tensor(self.weights), LENGTH, replacement=True).tolist())


class SamplerWithState(CountsEpochs):
    """Counts its passes, and can save the count."""

    def state_dict(self):
        return {'passes': self.passes}

    def load_state_dict(self, state):
        self.passes = state['passes']


class OwnBatchSampler:
    """Batches of one parity, in an order from numpy; not a subclass of anything."""

    def __init__(self, dataset=None):
        self.rng = np.random.default_rng(3)

    def __len__(self):
        return 6

    def __iter__(self):
        batches = [list(range(k, LENGTH, 2))[i : i + 4] for k in range(2) for i in range(0, LENGTH // 2, 4)]
        return iter([batches[i] for i in self.rng.permutation(len(batches))])


class Buckets(OwnBatchSampler):
    """Batches of 2, 3, 4 … samples, a different number of batches in each epoch."""

    def __iter__(self):
        order = torch.randperm(LENGTH).tolist()
        while order:
            size = int(torch.randint(2, 6, ()))
            size += len(order) == size + 1  # no batch of one
            yield order[:size]
            order = order[size:]
