"""Hooks that change data sets and samplers, as people write them."""

import random

from loader_parts.data_sets import LENGTH

from runnerkit.hooks import Hook


class Harder(Hook):
    """Tells a data set how hard to be."""

    def __init__(self, dataset):
        self.dataset = dataset

    def after_train_iter(self, runner):
        self.dataset.difficulty = (runner.iter + 1) / 10


class SetsLength(Hook):
    """Tells a data set which epoch it is."""

    def __init__(self, dataset):
        self.dataset = dataset

    def before_train_epoch(self, runner):
        self.dataset.epoch = runner.epoch


class Shuffles(Hook):
    """Shuffles a data set's own list in place."""

    def __init__(self, dataset):
        self.dataset = dataset

    def before_train_epoch(self, runner):
        random.shuffle(self.dataset.items)


class Weighs(Hook):
    """Gives a sampler new weights from the last loss."""

    def __init__(self, sampler):
        self.sampler = sampler

    def after_train_iter(self, runner):
        self.sampler.weights[runner.iter % LENGTH] += float(runner.outputs['loss'])


class SetsEpoch(Hook):
    """Lightning's and plain loops' way: the sampler is told by a hook."""

    def __init__(self, sampler):
        self.sampler = sampler

    def before_train_epoch(self, runner):
        self.sampler.set_epoch(runner.epoch)
