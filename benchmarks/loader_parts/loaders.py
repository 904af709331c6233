"""Typical loaders, wrappers around them, and collate functions."""

import random

import numpy as np
import torch
from loader_parts.data_sets import LENGTH, Drawn, point
from torch.utils.data import DataLoader, default_collate


class Stateful:
    """torchdata's StatefulDataLoader in miniature: it knows its position at any time, also after an epoch's end."""

    def __init__(self):
        self.rng = random.Random(3)
        self.done, self.began, self.goes_on = 0, self.rng.getstate(), False

    def __len__(self):
        return LENGTH // 4

    def __iter__(self):
        if not self.goes_on:
            self.done, self.began = 0, self.rng.getstate()
        self.goes_on = False
        self.rng.setstate(self.began)
        order = self.rng.sample(range(LENGTH), LENGTH)
        while self.done < len(self):
            at = 4 * self.done
            self.done += 1
            yield default_collate([point(i) for i in order[at : at + 4]])
        self.done = 0
        self.began = self.rng.getstate()

    def state_dict(self):
        return {'done': self.done, 'began': self.began}

    def load_state_dict(self, state):
        version, words, gauss = state['began']
        self.done, self.began, self.goes_on = state['done'], (version, tuple(words), gauss), True
        self.rng.setstate(self.began)


class Around:
    """A wrapper with a length around any loader, like wrappers that augment on the GPU."""

    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def __iter__(self):
        for x, y in self.inner:
            yield x * 2, y


class Ahead(Around):
    """apex's prefetcher: always one batch ahead of the training."""

    def __iter__(self):
        batches = iter(self.inner)
        waiting = next(batches, None)
        while waiting is not None:
            batch, waiting = waiting, next(batches, None)
            yield batch


class Paired:
    """One batch from each of two loaders, labelled and unlabelled."""

    def __init__(self, one, other):
        self.one, self.other = one, other

    def __len__(self):
        return min(len(self.one), len(self.other))

    def __iter__(self):
        for (x, y), (other, _) in zip(self.one, self.other, strict=False):
            yield x + other, y


class WithUnlabelled(Paired):
    """A second loader in addition to the first, in a separate cycle that continues over passes of the first."""

    waiting = None

    def __iter__(self):
        for x, y in self.one:
            batch = None if self.waiting is None else next(self.waiting, None)
            if batch is None:
                self.waiting = iter(self.other)
                batch = next(self.waiting)
            yield x + batch[0][: len(x)], y


class Endless:
    """Yields batches forever and has no length."""

    def __init__(self):
        self.rng = random.Random(3)

    def __iter__(self):
        while True:
            yield default_collate([point(self.rng.randrange(LENGTH)) for _ in range(4)])


class RepeatsBatches:
    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def __iter__(self):
        while True:
            yield from self.inner


class KeepsIterator(DataLoader):
    """YOLO's InfiniteDataLoader and timm's MultiEpochsDataLoader: one iterator for the whole training."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        object.__setattr__(self, 'batch_sampler', RepeatsBatches(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.inner)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)


class Resampled(DataLoader):
    """A subclass with an ``__iter__`` that does something first."""

    def __iter__(self):
        self.dataset.draw = Drawn('python', random.randrange(100))
        return super().__iter__()


def batches(n=5):
    """Ready batches, in order."""
    return (default_collate([point(4 * k + i) for i in range(4)]) for k in range(n))


def set_numpy_seed(worker):
    np.random.seed(torch.initial_seed() % 2**32)
    random.seed(torch.initial_seed())


def mixed(batch, draw):
    """Mixup: a part of each sample comes from the next one."""
    x, y = default_collate(batch)
    share = draw()
    return x * share + x.roll(1, 0) * (1 - share), y


class Mixup:
    """Mixup as an object with a generator."""

    def __init__(self, library):
        self.rng = Drawn(library).generator

    def __call__(self, batch):
        return mixed(batch, self._draw)

    def _draw(self):
        return (
            float(self.rng.random())
            if not isinstance(self.rng, torch.Generator)
            else float(torch.rand((), generator=self.rng))
        )

    collate = __call__


def mixup_closure():
    rng = np.random.default_rng(3)

    def collate(batch):
        return mixed(batch, rng.random)

    return collate
