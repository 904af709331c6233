"""A small project of its own for the tools to work on: config, data set and network in one folder."""

import pytest

FILES = {
    'points.py': '''
import torch
from torch.utils.data import Dataset


class Points(Dataset):
    def __init__(self, length=20):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        return torch.full((4,), i / 20) + 0.1 * torch.randn(4), torch.tensor([i % 2.0])


class NoLoss(torch.nn.Linear):
    def train_step(self, data, optimizer):
        return dict(log_vars={}, num_samples=1)

    val_step = train_step


class Gan(torch.nn.Linear):
    """Two modes of its own, one optimizer for each parameter."""

    def dis_step(self, data, optimizer):
        return self.step(data, 'd')

    def gen_step(self, data, optimizer):
        return self.step(data, 'g')

    def step(self, data, name):
        loss = self(data[0]).pow(2).mean()
        return dict(loss=loss, log_vars={name: loss}, num_samples=len(data[0]))

    train_step = dis_step


def fails(*_):
    raise ZeroDivisionError('a bug of the user')
''',
    'cfg.py': """
model = dict(
    type='Supervised',
    model=[
        dict(type='Linear', in_features=4, out_features=8),
        dict(type='Dropout', p=0.2),
        dict(type='Linear', in_features=8, out_features=1),
    ],
    loss=dict(type='MSELoss'),
    metrics=dict(error=dict(type='MeanSquaredError')),
)
dataset = '{{ fileDirname }}/points.py:Points'
data = dict(
    samples_per_gpu=4,
    workers_per_gpu=0,
    train=dict(type=dataset),
    val=dict(type=dataset, length=8),
    test=dict(type=dataset, length=6),
)
optimizer = dict(type='SGD', lr=0.1, momentum=0.9)
optimizer_config = dict()
lr_config = dict(policy='step', step=[2])
runner = dict(type='EpochBasedRunner', max_epochs=3)
checkpoint_config = dict(interval=1)
evaluation = dict(save_best='error')
log_config = dict(interval=2, hooks=[dict(type='TextLoggerHook')])
seed = 3
""",
}


@pytest.fixture
def project(tmp_path):
    """A folder with cfg.py and what it names."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def train(project, capsys):
    """Run the training tool in this process: (exit code, all it said, its error or else its last line)."""
    from runnerkit.cli.train import main

    def run(*options, config='cfg.py', work_dir='run'):
        code = main([str(project / config), '--work-dir', str(project / work_dir), *map(str, options)])
        printed = capsys.readouterr()
        said = printed.out + printed.err
        _, error, after = f'\n{said}'.rpartition('\nerror: ')
        return code, said, f'error: {after.strip()}' if error else (said.strip().splitlines() or [''])[-1]

    return run
