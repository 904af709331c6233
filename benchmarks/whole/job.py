"""The jobs that every way of `benchmarks/whole.py` does: network, data, optimizer, schedule, and what is logged."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'


@dataclass(frozen=True)
class Job:
    """A training.

    Args:
        data: builds the samples of the training and those of the evaluation after each epoch.
        network: builds the network for the samples of the training.
        loss: takes outputs and targets.
        optimizer: takes parameters.
        metric: builds a metric of torchmetrics, with its name; None evaluates the loss alone.
        rate: the learning rate of the first iteration, before `warm_up`.
        warm_up: iterations in which the rate grows linearly from a tenth; afterwards it falls along a cosine.
        clip: the largest norm of the gradients.
        momentum: the weight of the newest parameters in their moving average; None averages nothing.
        has_board: whether there is a log for TensorBoard.
    """

    data: Callable[[], tuple[Dataset, Dataset]]
    network: Callable[[Dataset], nn.Module]
    loss: Callable
    optimizer: Callable
    rate: float
    batch: int
    val_batch: int
    epochs: int
    log_every: int
    metric: Callable | None = None
    warm_up: int = 0
    clip: float | None = None
    momentum: float | None = None
    has_board: bool = False

    def share(self, step, total):
        """The share of the learning rate in iteration ``step`` of ``total``."""
        share = 0.5 * (1 + math.cos(math.pi * step / total))
        return share * (1 - (1 - step / self.warm_up) * 0.9) if step < self.warm_up else share


def digits():
    from digits import Digits

    return Digits('train', augment=True), Digits('val')


def lenet(train):
    from networks import LeNet

    return LeNet(channels=(16, 32), hidden=128, dropout=0.25)


def accuracy():
    from torchmetrics.classification import MulticlassAccuracy

    return 'accuracy', MulticlassAccuracy(10, average='micro')


def tokens():
    from tokens import Tokens

    return Tokens(240), Tokens(48, seed=1)


def transformer(train):
    from networks import ByteModel

    return ByteModel(width=320, blocks=8, heads=5, longest=32)


def ratings():
    from deepfm import Ratings

    return Ratings('train'), Ratings('test')


def deepfm(train):
    from deepfm import network

    return network(train)


def auc():
    from torchmetrics.classification import BinaryAUROC

    return 'auc', BinaryAUROC()


SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=5e-4)
ADAMW = partial(torch.optim.AdamW, lr=1e-3, weight_decay=0.01)
ADAM = partial(torch.optim.Adam, lr=1e-3, weight_decay=1e-5)
JOBS = {
    'lenet': Job(
        digits, lenet, nn.functional.cross_entropy, SGD, 0.05, 64, 64, 3, 25, accuracy, warm_up=50, has_board=True
    ),
    'transformer': Job(
        tokens, transformer, nn.functional.cross_entropy, ADAMW, 1e-3, 8, 8, 1, 10, clip=1.0, momentum=0.01
    ),
    'deepfm': Job(
        ratings, deepfm, nn.functional.binary_cross_entropy_with_logits, ADAM, 1e-3, 256, 1000, 1, 100, auc
    ),
}  # fmt: skip
FOLDERS = {'lenet': 'mnist', 'transformer': 'language'}


def begun(name):
    """A job, with its files at hand and its seed set."""
    if name in FOLDERS:
        sys.path.insert(0, str(CONFIGS / FOLDERS[name]))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return JOBS[name]
