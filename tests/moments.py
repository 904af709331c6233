"""Small runs of many kinds, each with what a hook has seen of every iteration."""

import copy
import io
from contextlib import redirect_stderr, redirect_stdout

import torch

from runnerkit import train
from runnerkit.hooks import Hook

#: The user's file of the runs.
NET = '''
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from runnerkit import report
from runnerkit.data import DATASETS
from runnerkit.nn import MODELS


@DATASETS.register_module()
class Noise(Dataset):
    """Points with noise of all three generators."""

    def __init__(self, length=22):
        self.files = [f'{i}.png' for i in range(length)]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        x = torch.full((4,), i / 22) + torch.randn(4) * 0.1
        x[0] += random.random() + np.random.rand()
        return dict(x=x, y=torch.tensor([float(i % 2)]), i=i)


@MODELS.register_module()
class Net(nn.Module):
    def __init__(self, evaluation_draws=False):
        super().__init__()
        self.evaluation_draws = evaluation_draws
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3))
        self.head = nn.Linear(8, 1)

    def train_step(self, data, optimizer):
        loss = ((self.head(self.body(data['x'])) - data['y']) ** 2).mean()
        return dict(loss=loss, log_vars=dict(loss=loss), num_samples=len(data['x']))

    def val_step(self, data, optimizer=None):
        if self.evaluation_draws:
            torch.rand(1)
        return self.train_step(data, optimizer)


@MODELS.register_module()
class Two(Net):
    """Two networks, each with an optimizer of its own, updated in the step."""

    def train_step(self, data, optimizer):
        features = self.body(data['x'])
        loss = ((self.head(features) - data['y']) ** 2).mean()
        return dict(loss=dict(body=loss + features.pow(2).mean(), head=loss), log_vars=dict(loss=loss), num_samples=4)
'''

CONFIG = """
custom_imports = dict(imports=['{{ fileDirname }}/net.py'])
model = dict(type='Net')
data = dict(samples_per_gpu=4, workers_per_gpu=0, train=dict(type='Noise'), val=dict(type='Noise', length=6))
optimizer = dict(type='SGD', lr=0.05, momentum=0.9)
lr_config = dict(policy='CosineAnnealing', min_lr=0.001, by_epoch=False)
runner = dict(type='EpochBasedRunner', max_epochs=4)
log_config = dict(interval=2)
checkpoint_config = dict(interval=1, max_keep_ckpts=2)
workflow = [('train', 1)]
seed = 3
"""

BY_ITER = {
    'runner': dict(type='IterBasedRunner', max_iters=20, _delete_=True),
    'checkpoint_config': dict(interval=7, max_keep_ckpts=2),
}

#: What each kind of run changes. The last two take two ranks.
KINDS = {
    'epochs': {},
    'iterations': BY_ITER,
    'workers': {'data.workers_per_gpu': 2, 'data.persistent_workers': True},
    'averages': {'custom_hooks': [dict(type='EMAHook', momentum=0.1)]},
    'accumulation': {'optimizer_config': dict(cumulative_iters=3, grad_clip=dict(max_norm=0.5))},
    'bf16': {'amp': 'bf16', 'optimizer': dict(type='Adam', lr=0.01, _delete_=True)},
    'optimizers': {
        'model.type': 'Two',
        'optimizer': dict(body=dict(type='SGD', lr=0.05), head=dict(type='Adam', lr=0.01), _delete_=True),
        'workflow': [('train', 1), ('val', 1)],
    },
    'evaluation': {
        'evaluation': dict(interval=3, by_epoch=False, save_best='loss', rule='less'),
        'model.evaluation_draws': True,
        'workflow': [('train', 1), ('val', 1)],
    },
    'resumed': {'checkpoint_config': dict(interval=5, by_epoch=False, max_keep_ckpts=-1)},
    'sharded': {'model_wrapper': dict(type='FSDP2'), 'checkpoint_config.interval': 2},
    'ranks': {},
}


class Seen(Hook):
    """Writes down of each iteration: batch, weights before it, loss and gradients."""

    def __init__(self, ends_at=None, fails_at=None):
        self.at, self.ends_at, self.fails_at = {}, ends_at, fails_at

    def before_train_iter(self, runner):
        if runner.iter == self.fails_at:
            raise RuntimeError('killed')
        self.at[runner.iter] = {'batch': copy.deepcopy(runner.data_batch), 'weights': weights_of(runner.model)}

    def after_train_iter(self, runner):
        self.at[runner.iter].update(after(runner))
        if runner.iter + 1 == self.ends_at:
            runner.stop('enough')


def own(tensor):
    """A copy of the part of ``tensor`` that this rank has."""
    return getattr(tensor, 'to_local', lambda: tensor)().detach().clone()


def weights_of(model):
    return {name: own(value) for name, value in model.state_dict().items()}


def after(runner):
    loss = runner.outputs['loss']
    losses = loss if isinstance(loss, dict) else {'': loss}
    gradients = {name: own(p.grad) for name, p in runner.model.named_parameters() if p.grad is not None}
    return {'loss': {name: own(each) for name, each in losses.items()}, 'gradients': gradients}


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other


def write_project(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'net.py').write_text(NET)
    (folder / 'cfg.py').write_text(CONFIG)
    return folder / 'cfg.py'


def quietly(function, *args, **options):
    with redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
        return function(*args, **options)


def train_kind(kind, folder):
    """Train a run of ``kind``; returns its work dir, and by iteration what was seen of those that count."""
    config, work_dir = write_project(folder), folder / 'run'
    parts = [Seen(ends_at=8), Seen(fails_at=14), Seen()] if kind == 'resumed' else [Seen()]
    seen = {}
    for number, hook in enumerate(parts):
        try:
            quietly(train, config, work_dir, cfg_options=KINDS[kind], hooks=[hook], resume=number > 0)
        except RuntimeError as error:
            if 'killed' not in str(error):
                raise
        seen.update(hook.at)
    return work_dir, seen
