"""Small runs by config in which one thing is planted; for the tests of `runnerkit diff`."""

import json
import shutil

import runnerkit

CODE = '''
import random

import torch
from torch import nn
from torch.utils.data import Dataset

from runnerkit.hooks import Hook


class Points(Dataset):
    """Points of a line with noise.

    Args:
        length: how many.
        changed: the index of a sample that is another one.
        swapped: the indices of two samples that are in each other's places.
    """

    def __init__(self, length=24, changed=None, swapped=None):
        self.length, self.changed, self.swapped = length, changed, swapped

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        if self.swapped and i in self.swapped:
            i = sum(self.swapped) - i
        x = torch.full((4,), i / 24) + torch.randn(4) * 0.1
        return dict(x=x + (i == self.changed) * 1e-6, y=torch.tensor([float(i % 2)]))


class Net(nn.Module):
    def __init__(self, dropout=0.3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(dropout))
        self.head = nn.Linear(8, 1)
        self.scale = 1.0

    def train_step(self, data, optimizer):
        out = self.head(self.body(data['x']))
        loss = nn.functional.mse_loss(out, data['y']) * self.scale
        return dict(loss=loss, log_vars=dict(loss=loss), num_samples=len(data['x']))

    val_step = train_step


class Plant(Hook):
    """Does something at one iteration, from 0."""

    def __init__(self, what=None, at=5):
        self.what, self.at = what, at

    def before_train_iter(self, runner):
        if runner.iter == self.at and self.what is not None:
            getattr(self, self.what)(runner)

    def after_backward(self, runner):
        if runner.iter == self.at and self.what == 'gradient':
            flip(net(runner).body[0].weight.grad)

    def flip(self, runner):
        flip(net(runner).body[0].weight.data)

    def buffer(self, runner):
        net(runner).body[1].running_mean += 0.5

    def momentum(self, runner):
        flip(runner.optimizer.state[net(runner).head.bias]['momentum_buffer'])

    def rate(self, runner):
        runner.optimizer.param_groups[0]['lr'] *= 1.00001

    def gradient(self, runner):
        pass

    def draw(self, runner):
        torch.rand(1)

    def draw_python(self, runner):
        random.random()

    def reseed(self, runner):
        torch.manual_seed(99)

    def batch(self, runner):
        flip(runner.data_batch['x'])

    def labels(self, runner):
        runner.data_batch['y'] = runner.data_batch['y'].flip(0)

    def scale(self, runner):
        net(runner).scale = 1 + 1e-6

    def output(self, runner):
        net(runner).body[2] = nn.LeakyReLU(1e-4)


def net(runner):
    return getattr(runner.model, 'module', runner.model)


def flip(tensor):
    tensor.view(-1)[:1].view(torch.int32)[0] ^= 1
'''

CONFIG = """
seed = 0
num_threads = 1
model = dict(type='{own}:Net', dropout=0.3)
data = dict(samples_per_gpu=4, workers_per_gpu=0, train=dict(type='{own}:Points', length=24))
optimizer = dict(type='SGD', lr=0.1, momentum=0.9)
optimizer_config = dict(fused=None)  # a fused step would round away what is planted into a momentum
runner = dict(type='EpochBasedRunner', max_epochs=2)
workflow = [('train', 1)]
log_config = dict(interval=2, fingerprint=True, hooks=[dict(type='TextLoggerHook')])
checkpoint_config = dict(interval=8, by_epoch=False)
custom_hooks = [dict(type='{own}:Plant', what=None)]
"""


def project(folder, code=CODE):
    """The config of a project in ``folder``, with its code beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    own = folder / 'own.py'
    own.write_text(code)
    (folder / 'cfg.py').write_text(CONFIG.format(own=own))
    return folder / 'cfg.py'


def train(config, work_dir, options=None, **keywords):
    """A run of 12 iterations; returns its work dir."""
    runnerkit.train(str(config), str(work_dir), cfg_options=options or {}, **keywords)
    return work_dir


def copied(work_dir, to, log=None, journal=None):
    """A copy of a work dir, with its log lines and the entry of its start changed by functions."""
    shutil.copytree(work_dir, to, symlinks=True)
    (path,) = to.glob('*.log.json')
    rows = [json.loads(row) for row in path.read_text().splitlines()]
    if log is not None:
        rows = [new for row in rows if (new := row if 'step' not in row else log(row)) is not None]
        path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
    if journal is not None:
        content = json.loads((to / 'run.json').read_text())
        journal(content['starts'][-1])
        (to / 'run.json').write_text(json.dumps(content))
    return to
