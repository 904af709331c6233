"""Typical hooks that change data sets and samplers."""

import random

from loader_parts.data_sets import LENGTH

from runnerkit.hooks import Hook


class Harder(Hook):
    """Sets the difficulty of a data set."""

    def __init__(self, dataset):
        self.dataset = dataset

    def after_train_iter(self, runner):
        self.dataset.difficulty = (runner.iter + 1) / 10


class SetsLength(Hook):
    """Sets the epoch of a data set."""

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
    """Sets new weights of a sampler from the last loss."""

    def __init__(self, sampler):
        self.sampler = sampler

    def after_train_iter(self, runner):
        self.sampler.weights[runner.iter % LENGTH] += float(runner.outputs['loss'])


class SetsEpoch(Hook):
    """As in Lightning and plain loops: a hook sets the sampler's epoch."""

    def __init__(self, sampler):
        self.sampler = sampler

    def before_train_epoch(self, runner):
        self.sampler.set_epoch(runner.epoch)
