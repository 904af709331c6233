"""Small real parts that many tests share: a model, a data set, runners, and a hook that writes down what it hears."""

import gc
import importlib.util
import logging
import random
import socket
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset
from torchmetrics import MeanSquaredError

from runnerkit.data import build_dataloader
from runnerkit.hooks import Hook
from runnerkit.hooks.hook import POINTS
from runnerkit.runner import EpochBasedRunner, IterBasedRunner

ROOT = Path(__file__).resolve().parent.parent


def benchmark(name):
    """A module of benchmarks/ by its name there. It finds the others, as it does in a script that is started."""
    folder = ROOT / 'benchmarks'
    spec = importlib.util.spec_from_file_location(name, folder / f'{name.replace(".", "/")}.py')
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


def end_at_once(workers, monkeypatch):
    """Whether a garbage collection tells a loader's workers to end. Torch waits for those that it cannot tell: here as
    long as a minute, which no slow machine is taken for."""
    began, longest = time.monotonic(), 30.0
    monkeypatch.setattr(torch.utils.data._utils, 'MP_STATUS_CHECK_INTERVAL', 2 * longest)
    gc.collect()
    return time.monotonic() - began < longest and [worker.exitcode for worker in workers] == [0] * len(workers)


class Noisy(Dataset):
    """Points of a line with noise from all three generators, so that every one of them must be exact."""

    def __init__(self, length=20):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        if i >= self.length:
            raise IndexError(i)
        x = torch.full((4,), i / self.length) + torch.randn(4) * 0.1
        x[0] += random.random()
        x[1] += np.random.rand()
        return x, torch.tensor([float(i % 2)])


class EndsEarly(Dataset):
    """Ends at a sample, or at none."""

    def __init__(self, at=5):
        self.at = at

    def __len__(self):
        return 12

    def __getitem__(self, i):
        if i == self.at:
            next(iter(()))
        return torch.full((4,), float(i)), torch.zeros(1)


class Tiny(nn.Module):
    """Two layers with dropout (which draws from the run's own stream) and BatchNorm (which has buffers)."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3))
        self.head = nn.Linear(8, 1)
        self.losses = []

    def forward(self, x):
        return self.head(self.body(x))

    def train_step(self, data, optimizer, **kwargs):
        x, y = data
        loss = nn.functional.mse_loss(self(x), y)
        self.losses.append(loss.item())
        return {'loss': loss, 'log_vars': {'loss': loss}, 'num_samples': len(x)}

    def val_step(self, data, optimizer=None, **kwargs):
        x, y = data
        loss = nn.functional.mse_loss(self(x), y)
        return {'loss': loss, 'log_vars': {'loss': loss}, 'num_samples': len(x)}


class Measured(Tiny):
    """`Tiny` with a metric, which is its loss by another name.

    Args:
        container: what holds the metric: a dict, or a ModuleDict.
    """

    def __init__(self, container=dict):
        super().__init__()
        self.metrics = container({'error': MeanSquaredError()})

    def val_step(self, data, optimizer=None, **kwargs):
        return {**super().val_step(data), 'preds': self(data[0]), 'target': data[1]}


class Recorder(Hook):
    """Writes down every point it hears, with the counters."""

    def __init__(self):
        self.heard = []

    def names(self):
        return [name for name, *_ in self.heard]


class At(Hook):
    """Calls ``do`` with the runner at the end of one iteration."""

    def __init__(self, iteration, do):
        self.iteration, self.do = iteration, do

    def after_train_iter(self, runner):
        if runner.iter == self.iteration:
            self.do(runner)


class Counts(Hook):
    """A user's hook with a memory: of the iterations that it has seen."""

    def __init__(self):
        self.n = 0

    def after_train_iter(self, runner):
        self.n += 1

    def state_dict(self):
        return {'n': self.n}

    def load_state_dict(self, state):
        self.n = state['n']


class Logged(logging.Handler):
    """Keeps what is logged: texts, and lines that begin with the level. As a context, what runnerkit logs meanwhile."""

    def __init__(self, level=logging.INFO):
        super().__init__(level)
        self.texts, self.lines = [], []

    def emit(self, record):
        self.texts.append(record.getMessage())
        self.lines.append(f'{record.levelname} {self.texts[-1]}')

    def clear(self):
        self.texts, self.lines = [], []

    def __enter__(self):
        logging.getLogger('runnerkit').addHandler(self)
        return self

    def __exit__(self, *error):
        logging.getLogger('runnerkit').removeHandler(self)


def _listener(point):
    def listen(self, runner, *args):
        self.heard.append((point, runner.epoch, runner.iter, runner.inner_iter))

    return listen


for _point in POINTS:
    if _point not in ('before_epoch', 'after_epoch', 'before_iter', 'after_iter'):
        setattr(Recorder, _point, _listener(_point))


def thinned(**values):
    """`pytest.mark.parametrize` over all combinations; those are thorough but for a few that have every value.

    Args:
        values: those of each argument.
    """
    columns = [list(each) for each in values.values()]
    few = {  # shifted from time to time, or columns of one length would have equal places
        tuple((i + j * (i // len(column))) % len(column) for j, column in enumerate(columns))
        for i in range(max(map(len, columns)))
    }
    rows = [
        pytest.param(*row, marks=[] if places in few else pytest.mark.thorough)
        for places, row in zip(product(*(range(len(column)) for column in columns)), product(*columns), strict=True)
    ]
    return pytest.mark.parametrize(tuple(values), rows)


def tiny_runner(kind='epoch', model=None, work_dir=None, seed=0, optimizer=None, **limits):
    """A runner with a fresh `Tiny` model and SGD with momentum."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    model = Tiny() if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) if optimizer is None else optimizer(model)
    runner_type = {'epoch': EpochBasedRunner, 'iter': IterBasedRunner}.get(kind, kind)
    return runner_type(model, optimizer=optimizer, work_dir=None if work_dir is None else str(work_dir), **limits)


def loader(length=20, batch=4, **options):
    return build_dataloader(Noisy(length), batch, 0, seed=5, **options)


def weights(model):
    return torch.cat([value.detach().float().flatten() for value in model.state_dict().values()])


_GIVEN = set()


def free_port():
    """The number of a port that no program of this machine uses, as a text; in one process never the same twice."""
    while True:
        with socket.socket() as probe:
            probe.bind(('127.0.0.1', 0))
            port = str(probe.getsockname()[1])
        if port not in _GIVEN:
            _GIVEN.add(port)
            return port
