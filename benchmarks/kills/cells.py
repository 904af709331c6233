"""Cells: trainings, each with one value of every dimension, and few enough to run them all."""

import itertools
import random
from pathlib import Path

import numpy as np
import torch
from kills.attempts import digest, log_of
from torch import nn
from torch.utils.data import Dataset

from runnerkit.checkpoint import find_latest_checkpoint
from runnerkit.data import build_dataloader
from runnerkit.hooks import CheckpointHook, EMAHook, EvalHook, Hook
from runnerkit.log_files import set_aside
from runnerkit.runner import EpochBasedRunner, IterBasedRunner

BATCHES, EPOCHS = 5, 3

#: Policies, with their keys in addition to ``warmup``; all but those by epoch count iterations.
SCHEDULES = {
    'fixed': {},
    'step': {'step': [1, 2]},
    'exp': {'gamma': 0.9},
    'poly': {'power': 0.9, 'min_lr': 1e-4},
    'inv': {'gamma': 0.2},
    'CosineAnnealing': {'min_lr_ratio': 0.01},
    'FlatCosineAnnealing': {'min_lr': 0.001},
    'CosineRestart': {'periods': [6, 20], 'restart_weights': [1, 0.5], 'min_lr': 0.0, 'by_epoch': False},
    'LinearAnnealing': {'min_lr': 0.0, 'by_epoch': False},
    'cyclic': {'by_epoch': False, 'cyclic_times': 2},
    'OneCycle': {'max_lr': 0.1, 'by_epoch': False},
    'StepLR': {'step_size': 1, 'gamma': 0.5},
    'OneCycleLR': {'max_lr': 0.1, 'total_steps': BATCHES * EPOCHS + 1, 'by_epoch': False},
    'ReduceLROnPlateau': {'monitor': 'train/loss', 'patience': 0, 'by_epoch': False},
    'SequentialLR': {
        'schedulers': [{'policy': 'LinearLR', 'total_iters': 4}, {'policy': 'CosineAnnealingLR', 'T_max': 11}],
        'milestones': [4],
        'by_epoch': False,
    },
}
OF_TORCH = ('StepLR', 'OneCycleLR', 'ReduceLROnPlateau', 'SequentialLR')
MOMENTA = {
    'none': None,
    'step': {'policy': 'step', 'step': [1, 2]},
    'CosineAnnealing': {'policy': 'CosineAnnealing', 'min_momentum': 0.5, 'by_epoch': False},
    'LinearAnnealing': {
        'policy': 'LinearAnnealing',
        'min_momentum_ratio': 0.5,
        'warmup': 'linear',
        'warmup_iters': 4,
        'warmup_ratio': 0.95,
    },
    'cyclic': {'policy': 'cyclic', 'by_epoch': False},
    'OneCycle': {'policy': 'OneCycle', 'by_epoch': False},
}
OPTIMIZERS = {
    'SGD': lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    'Adam': lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
    'AdamW': lambda model: torch.optim.AdamW(model.parameters(), lr=0.01, amsgrad=True),
    'two': lambda model: {
        'body': torch.optim.Adam(model.body.parameters(), lr=0.01),
        'head': torch.optim.SGD(model.head.parameters(), lr=0.1, momentum=0.9),
    },
}
WORKFLOWS = {
    'train': [('train', 1)],
    'train, val': [('train', 1), ('val', 1)],
    '2 train, val': [('train', 2), ('val', 1)],
}
WORKERS = {'0': (0, False), '1': (1, False), '3': (3, False), '1 kept': (1, True), '3 kept': (3, True)}

DIMENSIONS = {
    'schedule': list(SCHEDULES),
    'momentum': list(MOMENTA),
    'workers': list(WORKERS),
    'randomness': ['dropout', 'python', 'numpy', 'torch', 'all'],
    'warmup': ['none', 'constant', 'linear', 'exp'],
    'optimizer': list(OPTIMIZERS),
    'workflow': list(WORKFLOWS),
    'save': ['epoch', '3 iterations', 'iteration'],
    'amp': ['none', 'bf16', 'fp16'],
    'ema': ['none', 'each', 'every second'],
    'accumulate': ['1', '3'],
    'clip': ['no', 'yes'],
    'log': ['1', '3', '4'],
    'runner': ['epoch', 'iter'],
    'limit': ['max_epochs', 'max_iters'],
    'evaluation': ['none', 'save_best'],
    'hooks': ['none', 'with states'],
    'tensorboard': ['no', 'yes'],
}


# --- cells -----------------------------------------------------------------------------------------------------------


def possible(cell):
    """Whether values are compatible: torch's schedulers have their own warm-up schedulers."""
    return not (cell.get('schedule') in OF_TORCH and cell.get('warmup', 'none') != 'none')


def groups(strength):
    """All combinations of ``strength`` dimensions' values that can occur together."""
    for names in itertools.combinations(DIMENSIONS, strength):
        for values in itertools.product(*(DIMENSIONS[name] for name in names)):
            group = tuple(zip(names, values, strict=True))
            if possible(dict(group)):
                yield group


def cells(strength=2):
    """A short list of cells in which every pair of values occurs (with strength 1, every value).

    Greedy: each cell begins with the first missing pair, and takes in each other dimension the value with the most
    missing pairs; among equals, the least used one.
    """
    missing = dict.fromkeys(groups(strength))
    used = {(name, value): 0 for name in DIMENSIONS for value in DIMENSIONS[name]}
    found = []
    while missing:
        cell = dict(next(iter(missing)))
        for name in sorted(DIMENSIONS, key=lambda name: -len(DIMENSIONS[name])):
            if name not in cell:
                choices = [value for value in DIMENSIONS[name] if possible({**cell, name: value})]
                cell[name] = min(choices, key=lambda value: (-gain(cell, (name, value), missing), used[name, value]))
        cell = {name: cell[name] for name in DIMENSIONS}
        for group in itertools.combinations(cell.items(), strength):
            missing.pop(group, None)
        for item in cell.items():
            used[item] += 1
        found.append(cell)
    return found


def gain(cell, item, missing):
    """The number of missing groups that one more item adds to a cell."""
    order = list(DIMENSIONS)
    if all(len(group) == 1 for group in itertools.islice(missing, 1)):
        return (item,) in missing
    pairs = (tuple(sorted((item, each), key=lambda pair: order.index(pair[0]))) for each in cell.items())
    return sum(pair in missing for pair in pairs)


def name_of(cell):
    return ' | '.join(f'{name}: {value}' for name, value in cell.items())


# --- the training of a cell ------------------------------------------------------------------------------------------


class Samples(Dataset):
    """Points of a line, with noise from the generators that the cell names."""

    def __init__(self, length, randomness):
        self.length, self.randomness = length, randomness

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        x = torch.full((4,), i / self.length)
        if self.randomness in ('torch', 'all'):
            x += torch.randn(4) * 0.1
        if self.randomness in ('python', 'all'):
            x[0] += random.random()
        if self.randomness in ('numpy', 'all'):
            x[1] += np.random.rand()
        return x, torch.tensor([float(i % 2)])


class Net(nn.Module):
    """Two layers, with BatchNorm, and dropout if the cell has it."""

    def __init__(self, dropout):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(dropout))
        self.head = nn.Linear(8, 1)

    def train_step(self, data, optimizer=None, **kwargs):
        x, y = data
        loss = nn.functional.mse_loss(self.head(self.body(x)).float(), y)
        return {'loss': loss, 'log_vars': {'loss': loss}, 'num_samples': len(x)}

    val_step = train_step


class Remembers(Hook):
    """A user's hook with state, which draws from the run's own generators."""

    def __init__(self):
        self.drawn = []

    def after_train_iter(self, runner):
        self.drawn.append(random.random() + float(np.random.rand()) + float(torch.rand(1)))

    def state_dict(self):
        return {'drawn': list(self.drawn)}

    def load_state_dict(self, state):
        self.drawn = list(state['drawn'])


def build(cell, work_dir, seed=0):
    """The runner of a cell, with all its hooks."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    model = Net(0.3 if cell['randomness'] in ('dropout', 'all') else 0.0)
    limit = {'max_epochs': EPOCHS} if cell['limit'] == 'max_epochs' else {'max_iters': BATCHES * EPOCHS - 2}
    kind = EpochBasedRunner if cell['runner'] == 'epoch' else IterBasedRunner
    runner = kind(model, optimizer=OPTIMIZERS[cell['optimizer']](model), work_dir=str(work_dir), **limit)
    lr = {'policy': cell['schedule'], **SCHEDULES[cell['schedule']]}
    if cell['warmup'] != 'none':
        lr.update(warmup=cell['warmup'], warmup_iters=4, warmup_ratio=0.1)
    update = {'cumulative_iters': int(cell['accumulate'])}
    if cell['amp'] != 'none':
        update['amp'] = cell['amp']
    if cell['amp'] == 'fp16':
        update['loss_scale'] = {'init_scale': 1024.0, 'growth_interval': 3}
    if cell['clip'] == 'yes':
        update['grad_clip'] = {'max_norm': 0.1}
    loggers = ['TextLoggerHook'] + ['TensorboardLoggerHook'] * (cell['tensorboard'] == 'yes')
    runner.register_training_hooks(
        lr_config=lr,
        optimizer_config=update,
        checkpoint_config=saving(cell),
        log_config={'interval': int(cell['log']), 'hooks': [{'type': each} for each in loggers]},
        momentum_config=MOMENTA[cell['momentum']],
        custom_hooks_config=custom_hooks(cell),
    )
    return runner


def saving(cell):
    if cell['save'] == 'epoch':
        by_epoch = cell['runner'] == 'epoch'
        return CheckpointHook(interval=1 if by_epoch else BATCHES, by_epoch=by_epoch)
    if cell['save'] == '3 iterations':
        return CheckpointHook(interval=3, by_epoch=False)
    return CheckpointHook(interval=1, by_epoch=False, max_keep_ckpts=1)


def custom_hooks(cell):
    hooks = []
    if cell['ema'] != 'none':
        hooks.append(EMAHook(momentum=0.1, interval=1 if cell['ema'] == 'each' else 2, warm_up=3))
    if cell['evaluation'] == 'save_best':
        val = build_dataloader(Samples(6, 'all'), 4, 0, shuffle=False, seed=7)
        hooks.append(EvalHook(val, save_best='loss', by_epoch=False, interval=2))
    if cell['hooks'] == 'with states':
        hooks.append(Remembers())
    return hooks


def train(cell, runner):
    """Run ``runner`` to its end; return the parts that must not depend on interruptions."""
    workers, keeps = WORKERS[cell['workers']]
    workflow = WORKFLOWS[cell['workflow']]
    loaders = [
        build_dataloader(
            Samples(4 * BATCHES if mode == 'train' else 6, cell['randomness']),
            4,
            workers if mode == 'train' else 0,
            seed=5,
            persistent_workers=keeps and mode == 'train',
        )
        for mode, _ in workflow
    ]
    runner.run(loaders, workflow)
    named = runner.optimizer if isinstance(runner.optimizer, dict) else {'': runner.optimizer}
    return {
        'weights': digest(runner.model.state_dict()),
        'optimizers': digest({name: each.state_dict() for name, each in named.items()}),
        'random states': digest([random.getstate(), np.random.get_state(), torch.get_rng_state()]),
        'hooks': digest([hook.state_dict() for hook in runner.hooks if isinstance(hook, Remembers)]),
        'scaler': digest([update.state_dict() for update in runner.updater.updates.values()]),
        'best score': str(runner.meta.get('hook_msgs', {}).get('best_score')),
        'counters': (runner.epoch, runner.iter),
        'log': log_of(runner.work_dir),
        'curves': curves_of(runner.work_dir) if cell['tensorboard'] == 'yes' else None,
    }


def resumed_by_itself(cell, work_dir):
    """A cell's runner, resumed as by ``--auto-resume``; the resumed state does not depend on its seed."""
    older_events(Path(work_dir) / 'tf_logs')
    checkpoint = find_latest_checkpoint(work_dir)
    runner = build(cell, work_dir, seed=0 if checkpoint is None else 99)
    if checkpoint is None:
        set_aside(work_dir)
    else:
        runner.resume(str(checkpoint))
    return runner


def go_on(cell, work_dir):
    """One process of a cell: from the newest checkpoint to the end."""
    return train(cell, resumed_by_itself(cell, work_dir))


def older_events(folder):
    """Make a dead run's event files sort first: TensorBoard reads them in the order of their names, which within one
    second is that of process ids as strings. Only this script restarts runs so quickly."""
    for path in folder.glob('events.out.tfevents.*'):
        path.rename(path.with_name(path.name.replace('tfevents.', 'tfevents.0', 1)))


def curves_of(work_dir):
    """The values that TensorBoard shows."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(Path(work_dir) / 'tf_logs')).Reload()
    return {tag: [(event.step, event.value) for event in read.Scalars(tag)] for tag in read.Tags()['scalars']}
