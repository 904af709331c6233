"""Record learning-rate and momentum curves of the real MMCV 1.x, as reference data for the tests.

Run it with the Python of a virtual environment with mmcv 1.7.2 (no compiled ops are needed):

    python benchmarks/golden_curves.py tests/data

It drives MMCV's own runners over every policy and writes ``lr_curves.npz`` and ``momentum_curves.npz``. In each file
``cases`` is a JSON list of settings and ``values`` all recorded numbers one after another: for every case, ``iters``
iterations times the number of parameter groups, iteration by iteration.
"""

import copy
import json
import logging
import pathlib
import sys
import tempfile
import types

import numpy as np
import torch

ITERS_PER_EPOCH = 7
EPOCHS = 143  # 1,001 iterations: enough for slow drifts to show
WARMUPS = [
    dict(warmup='constant', warmup_iters=100),
    dict(warmup='linear', warmup_iters=100, warmup_ratio=0.001),
    dict(warmup='exp', warmup_iters=50, warmup_ratio=0.25),
]

LR_POLICIES = [
    dict(policy='fixed'),
    dict(policy='step', step=[60, 100]),
    dict(policy='step', step=30, gamma=0.3),
    dict(policy='step', step=[20, 40, 90], gamma=0.5, min_lr=0.01),
    dict(policy='exp', gamma=0.97),
    dict(policy='poly', power=0.9, min_lr=1e-4),
    dict(policy='poly'),
    dict(policy='poly', power=2.0),
    dict(policy='inv', gamma=0.1),
    dict(policy='inv', gamma=0.01, power=0.75),
    dict(policy='CosineAnnealing', min_lr=0.0),
    dict(policy='CosineAnnealing', min_lr_ratio=1e-3),
    dict(policy='FlatCosineAnnealing', min_lr_ratio=0.05),
    dict(policy='FlatCosineAnnealing', start_percent=0.3, min_lr=1e-5),
    dict(policy='CosineRestart', periods=[43, 100], restart_weights=[1, 0.5], min_lr=1e-4),
    dict(policy='CosineRestart', periods=[20, 30, 93], restart_weights=[1, 0.7, 0.3], min_lr_ratio=0.1),
    dict(policy='LinearAnnealing', min_lr=1e-4),
    dict(policy='LinearAnnealing', min_lr_ratio=0.01),
]
LR_POLICIES_BY_ITER = [
    dict(policy='step', step=[300, 700]),
    dict(policy='step', step=250, gamma=0.7),
    dict(policy='CosineRestart', periods=[301, 700], restart_weights=[1, 0.5], min_lr=1e-4),
    dict(policy='exp', gamma=0.999),
    dict(policy='cyclic'),
    dict(policy='cyclic', target_ratio=6.0, cyclic_times=4, step_ratio_up=0.25, gamma=0.8),
    dict(policy='cyclic', target_ratio=(5, 0.01), cyclic_times=3, anneal_strategy='linear', gamma=0.5),
    dict(policy='OneCycle', max_lr=0.3),
    dict(policy='OneCycle', max_lr=0.3, total_steps=1200, pct_start=0.2, div_factor=10, final_div_factor=100.0),
    dict(policy='OneCycle', max_lr=0.3, three_phase=True),
    dict(policy='OneCycle', max_lr=0.3, anneal_strategy='linear'),
    dict(policy='OneCycle', max_lr=0.3, anneal_strategy='linear', three_phase=True, pct_start=0.4),
]
MOMENTUM_POLICIES = [
    dict(policy='step', step=[60, 100]),
    dict(policy='step', step=30, gamma=0.9, min_momentum=0.7),
    dict(policy='CosineAnnealing', min_momentum=0.5),
    dict(policy='CosineAnnealing', min_momentum_ratio=0.9),
    dict(policy='LinearAnnealing', min_momentum=0.6),
    dict(policy='LinearAnnealing', min_momentum_ratio=0.8),
]
MOMENTUM_POLICIES_BY_ITER = [
    dict(policy='step', step=[300, 700], gamma=0.8),
    dict(policy='cyclic'),
    dict(policy='cyclic', target_ratio=(0.7, 0.9), cyclic_times=4, step_ratio_up=0.25, gamma=0.8),
    dict(policy='cyclic', cyclic_times=2, anneal_strategy='linear', gamma=0.5),
    dict(policy='OneCycle'),
    dict(policy='OneCycle', base_momentum=0.7, max_momentum=0.98, pct_start=0.2),
    dict(policy='OneCycle', three_phase=True),
    dict(policy='OneCycle', anneal_strategy='linear'),
    dict(policy='OneCycle', anneal_strategy='linear', three_phase=True, pct_start=0.4),
]


def lr_cases():
    """Every policy plain, by epoch and by iteration in both runners; then one setting of each with each warm-up."""
    for config in LR_POLICIES:
        yield case('epoch', 'sgd', dict(config, by_epoch=True))
        yield case('iter', 'sgd', dict(config, by_epoch=False) if 'periods' not in config else None)
    for config in LR_POLICIES_BY_ITER:
        yield case('epoch', 'sgd', dict(config, by_epoch=False))
    for config in (LR_POLICIES_BY_ITER[0], LR_POLICIES_BY_ITER[4], LR_POLICIES_BY_ITER[7]):
        yield case('iter', 'adam', dict(config, by_epoch=False))
    for config in one_of_each(LR_POLICIES):
        for warmup in WARMUPS:
            yield case('epoch', 'sgd', dict(config, by_epoch=True, **warmup))
            yield case('epoch', 'sgd', dict(config, by_epoch=True, **warmup, warmup_by_epoch=True))
    for config in one_of_each(LR_POLICIES + LR_POLICIES_BY_ITER):
        for warmup in WARMUPS:
            periods = 'periods' in config
            yield case('iter', 'sgd', dict(config, by_epoch=False, **warmup) if not periods else None)
    for config in (LR_POLICIES[1], LR_POLICIES[10]):
        for optimizer in ('groups', 'dict'):
            yield case('epoch', optimizer, dict(config, by_epoch=True, **WARMUPS[1]))
            yield case('iter', optimizer, dict(config, by_epoch=False, **WARMUPS[2]))
    yield case('epoch', 'groups', dict(policy='OneCycle', max_lr=[0.3, 0.03], by_epoch=False))
    yield case('epoch', 'dict', dict(policy='OneCycle', max_lr=dict(G=[0.3], D=[0.1]), by_epoch=False))


def momentum_cases():
    """As `lr_cases`, with SGD's momentum and Adam's first beta."""
    for config in MOMENTUM_POLICIES:
        for optimizer in ('sgd', 'adam'):
            yield case('epoch', optimizer, dict(config, by_epoch=True))
        yield case('iter', 'sgd', dict(config, by_epoch=False))
    for config in MOMENTUM_POLICIES_BY_ITER:
        yield case('iter', 'sgd', dict(config, by_epoch=False))
    for config in (MOMENTUM_POLICIES_BY_ITER[1], MOMENTUM_POLICIES_BY_ITER[4]):
        yield case('epoch', 'adam', dict(config, by_epoch=False))
    for config in one_of_each(MOMENTUM_POLICIES):
        for warmup in WARMUPS:
            yield case('epoch', 'sgd', dict(config, by_epoch=True, **warmup))
            yield case('iter', 'adam', dict(config, by_epoch=False, **warmup))
    for config in (MOMENTUM_POLICIES[0], MOMENTUM_POLICIES[2]):
        for optimizer in ('groups', 'dict'):
            yield case('epoch', optimizer, dict(config, by_epoch=True, **WARMUPS[1]))
            yield case('iter', optimizer, dict(config, by_epoch=False, **WARMUPS[2]))
    yield case('epoch', 'groups', dict(policy='OneCycle', base_momentum=[0.8, 0.7], by_epoch=False))
    yield case('epoch', 'dict', dict(policy='OneCycle', by_epoch=False))


def case(runner, optimizer, config):
    """One setting, or None if the configuration makes no sense."""
    if config is None:
        return None
    return dict(
        runner=runner,
        optimizer=optimizer,
        config=config,
        iters=ITERS_PER_EPOCH * EPOCHS,
        iters_per_epoch=ITERS_PER_EPOCH,
    )


def one_of_each(configs):
    """The first configuration of every policy."""
    return list({config['policy']: config for config in reversed(configs)}.values())[::-1]


class Loader(list):
    """A list of batches that resembles a DataLoader enough for MMCV's iteration runner."""

    sampler = None


class Model(torch.nn.Module):
    """Two layers that are never trained: only the groups of their optimizers matter."""

    def __init__(self):
        super().__init__()
        self.G = torch.nn.Linear(1, 1)
        self.D = torch.nn.Linear(1, 1)

    def train_step(self, data, optimizer):
        return dict(loss=torch.zeros(()), log_vars=dict(), num_samples=1)


def build_optimizer(kind, model):
    """One of the optimizers that the cases name; the tests build the same ones."""
    if kind == 'sgd':
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if kind == 'adam':
        return torch.optim.Adam(model.parameters(), lr=0.003, betas=(0.9, 0.99))
    if kind == 'groups':
        groups = [dict(params=model.G.parameters()), dict(params=model.D.parameters(), lr=0.037, momentum=0.83)]
        return torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    return dict(
        G=torch.optim.SGD(model.G.parameters(), lr=0.1, momentum=0.9),
        D=torch.optim.Adam(model.D.parameters(), lr=0.003, betas=(0.85, 0.99)),
    )


def groups_of(optimizer):
    """The parameter groups of an optimizer or of a dict of them, in order."""
    optimizers = optimizer.values() if isinstance(optimizer, dict) else [optimizer]
    return [group for one in optimizers for group in one.param_groups]


def read(group, quantity):
    """The learning rate of a group, or its momentum or first beta."""
    if quantity == 'lr':
        return group['lr']
    return group['momentum'] if 'momentum' in group else group['betas'][0]


def record(setting, quantity):
    """Run the real runner once and return the values of the groups in every iteration."""
    from mmcv.runner import EpochBasedRunner, Hook, IterBasedRunner

    values = []

    class Recorder(Hook):
        def before_train_iter(self, runner):
            values.extend(read(group, quantity) for group in groups_of(runner.optimizer))

    model = Model()
    logger = logging.getLogger('golden')
    logger.setLevel(logging.ERROR)
    limit = dict(max_epochs=EPOCHS) if setting['runner'] == 'epoch' else dict(max_iters=setting['iters'])
    kind = EpochBasedRunner if setting['runner'] == 'epoch' else IterBasedRunner
    optimizer = build_optimizer(setting['optimizer'], model)
    with tempfile.TemporaryDirectory() as work_dir:
        runner = kind(model, optimizer=optimizer, work_dir=work_dir, logger=logger, **limit)
        config = copy.deepcopy(setting['config'])  # MMCV removes the policy from it
        getattr(runner, f'register_{quantity}_hook')(config)
        runner.register_hook(Recorder(), priority='LOWEST')
        runner.run([Loader(range(setting['iters_per_epoch']))], [('train', 1)])
    return values


def stand_ins():
    """Allow importing mmcv without torchvision, and switch off its pauses between epochs."""
    sys.modules.setdefault('torchvision', types.ModuleType('torchvision'))
    import mmcv.runner.epoch_based_runner
    import mmcv.runner.iter_based_runner

    quiet = types.SimpleNamespace(sleep=lambda seconds: None)
    mmcv.runner.epoch_based_runner.time = quiet
    mmcv.runner.iter_based_runner.time = quiet


def main(out_dir):
    """Write both files into ``out_dir``."""
    stand_ins()
    for quantity, cases in (('lr', lr_cases()), ('momentum', momentum_cases())):
        settings = [setting for setting in cases if setting is not None]
        values = np.array([value for setting in settings for value in record(setting, quantity)], dtype=np.float64)
        file = pathlib.Path(out_dir) / f'{quantity}_curves.npz'
        np.savez_compressed(file, cases=json.dumps(settings), values=values)
        print(f'{file}: {len(settings)} curves, {values.size} numbers, {file.stat().st_size} bytes')


if __name__ == '__main__':
    main(sys.argv[1])
