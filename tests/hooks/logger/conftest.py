"""What the tests of trackers share: a run whose numbers are known, and clients that write down what is called."""

import sys
from unittest.mock import MagicMock

import pytest
import torch
from support import Tiny, loader, tiny_runner

from runnerkit.hooks import CheckpointHook, Hook, IterTimerHook

RATES = {'learning_rate': 0.1, 'momentum': 0.9}


class Known(Tiny):
    def train_step(self, data, optimizer=None, **kwargs):
        return {'loss': torch.zeros(()), 'log_vars': {'loss': 1.5}, 'num_samples': len(data[0])}

    def val_step(self, data, optimizer=None, **kwargs):
        return {'loss': torch.zeros(()), 'log_vars': {'acc': 0.25}, 'num_samples': len(data[0])}


class Fail(Hook):
    def after_train_epoch(self, runner):
        raise ArithmeticError('diverged')


@pytest.fixture
def train(tmp_path):
    """Runs epochs of three batches and a validation each."""

    def train(hook, hooks=(), resume=None, rank=0, epochs=2, batches=3, **options):
        runner = tiny_runner(model=Known(), work_dir=tmp_path / 'exp', max_epochs=epochs, **options)
        runner._rank = rank
        for each in [CheckpointHook(interval=1), IterTimerHook(), *hooks, hook]:
            runner.register_hook(each)
        if resume:
            runner.resume(str(tmp_path / 'exp' / resume))
        data = loader(4 * batches)
        runner.run([data, data], [('train', 1), ('val', 1)])
        return runner

    return train


@pytest.fixture
def fail():
    return Fail()


@pytest.fixture
def fake(monkeypatch):
    """Puts a client that takes every call in the place of a module and those below it."""

    def fake(name, *below):
        client = MagicMock(name=name)
        monkeypatch.setitem(sys.modules, name, client)
        for path in below:
            part = client
            for attribute in path.split('.'):
                part = getattr(part, attribute)
            monkeypatch.setitem(sys.modules, f'{name}.{path}', part)
        return client

    return fake


@pytest.fixture
def rates():
    return dict(RATES)
