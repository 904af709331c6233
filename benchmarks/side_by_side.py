"""Train the same small network in many ways, with the real MMCV 1.x or with runnerkit: only the import differs.

    python benchmarks/side_by_side.py mmcv tests/data/mmcv_weights.json      # in an environment with mmcv 1.7.2
    python benchmarks/side_by_side.py runnerkit                              # compares with that file

For each setup, the file has the weights after training (``float.hex``) and the learning rate of each iteration. It also
has the weights of a plain loop, which show whether another machine or torch computes the same last bits.
"""

import importlib
import json
import logging
import pathlib
import sys
import tempfile
import time
import types

import torch
from torch import nn

RECORDED = pathlib.Path(__file__).resolve().parent.parent / 'tests' / 'data' / 'mmcv_weights.json'
BATCHES, EPOCHS = 5, 4

SGD = dict(type='SGD', lr=0.1, momentum=0.9, weight_decay=1e-3)
NESTEROV = dict(type='SGD', lr=0.05, momentum=0.8, nesterov=True)
ADAM = dict(type='Adam', lr=0.01, betas=(0.9, 0.99))
ADAMW = dict(type='AdamW', lr=0.01, weight_decay=0.05)
STEP = dict(policy='step', step=[2, 3])
CLIP = dict(grad_clip=dict(max_norm=0.1, norm_type=2))
CYCLIC = dict(policy='cyclic', target_ratio=(10, 1e-4), cyclic_times=2, step_ratio_up=0.4)
ONE_CYCLE = dict(policy='OneCycle', max_lr=0.2, pct_start=0.3)
PARAMWISE = dict(
    custom_keys={'head': dict(lr_mult=10.0), 'conv': dict(decay_mult=0.5)},
    norm_decay_mult=0.0,
    bias_lr_mult=2.0,
    bias_decay_mult=0.0,
)


def setup(optimizer=SGD, lr=STEP, by_epoch=True, **more):
    """One training: its configs, whose runner counts epochs or iterations."""
    return dict(optimizer=optimizer, lr_config=lr, by_epoch=by_epoch, **more)


EMA = dict(type='EMAHook', momentum=0.1, interval=1, warm_up=1, priority=40)
WARM_EMA = dict(type='EMAHook', momentum=0.3, warm_up=20, priority=40)
ACCUMULATE = dict(type='GradientCumulativeOptimizerHook', cumulative_iters=3)

SETUPS = {
    'sgd, step': setup(),
    'sgd, fixed': setup(lr=dict(policy='fixed')),
    'nesterov, step with warm-up': setup(NESTEROV, dict(**STEP, warmup='linear', warmup_iters=4, warmup_ratio=0.01)),
    'adam, poly': setup(ADAM, dict(policy='poly', power=0.9, min_lr=1e-4, by_epoch=False)),
    'adamw, cosine': setup(ADAMW, dict(policy='CosineAnnealing', min_lr_ratio=0.01)),
    'adamw, cosine with warm-up by epoch': setup(
        ADAMW, dict(policy='CosineAnnealing', min_lr=1e-5, warmup='exp', warmup_iters=1, warmup_by_epoch=True)
    ),
    'sgd, exp': setup(lr=dict(policy='exp', gamma=0.7)),
    'sgd, inv': setup(lr=dict(policy='inv', gamma=0.2, power=0.5)),
    'sgd, cosine restarts': setup(
        lr=dict(policy='CosineRestart', periods=[6, 14], restart_weights=[1, 0.5], min_lr=1e-3, by_epoch=False)
    ),
    'sgd, flat cosine': setup(lr=dict(policy='FlatCosineAnnealing', start_percent=0.5, min_lr=0.0)),
    'sgd, linear annealing': setup(lr=dict(policy='LinearAnnealing', min_lr=0.0)),
    'sgd, clipping': setup(optimizer_config=CLIP),
    'adam, clipping by the largest value': setup(
        ADAM, optimizer_config=dict(grad_clip=dict(max_norm=0.01, norm_type=float('inf')))
    ),
    'sgd, accumulation with a remainder': setup(optimizer_config=ACCUMULATE),
    'adam, accumulation and clipping': setup(ADAM, optimizer_config=dict(**ACCUMULATE, **CLIP)),
    'sgd, averages': setup(custom_hooks=[EMA]),
    'sgd, averages at the defaults': setup(custom_hooks=[dict(type='EMAHook', priority=40)]),
    'adam, averages with warm-up': setup(ADAM, custom_hooks=[WARM_EMA]),
    'sgd, paramwise': setup(dict(**SGD, paramwise_cfg=PARAMWISE)),
    'adamw, paramwise, cosine': setup(
        dict(**ADAMW, paramwise_cfg=PARAMWISE), dict(policy='CosineAnnealing', min_lr=0.0, by_epoch=False)
    ),
    'sgd, validation in the workflow': setup(workflow=[('train', 2), ('val', 1)]),
    'by iteration: sgd, poly': setup(lr=dict(policy='poly', power=0.9, min_lr=1e-4), by_epoch=False),
    'by iteration: adamw, cosine with warm-up': setup(
        ADAMW, dict(policy='CosineAnnealing', min_lr=0.0, warmup='linear', warmup_iters=5), by_epoch=False
    ),
    'by iteration: sgd, cyclic with momentum': setup(
        lr=CYCLIC,
        by_epoch=False,
        momentum_config=dict(policy='cyclic', target_ratio=(0.85 / 0.95, 1), cyclic_times=2, step_ratio_up=0.4),
    ),
    'by iteration: adam, one cycle with momentum': setup(
        ADAM,
        dict(**ONE_CYCLE, total_steps=BATCHES * EPOCHS),
        by_epoch=False,
        momentum_config=dict(policy='OneCycle', base_momentum=0.85, max_momentum=0.95),
    ),
    'by iteration: sgd, accumulation with a remainder': setup(optimizer_config=ACCUMULATE, by_epoch=False),
    'by iteration: sgd, clipping, train and val': setup(
        optimizer_config=CLIP, by_epoch=False, workflow=[('train', 3), ('val', 2)]
    ),
}


class Net(nn.Module):
    """A convolution, a norm with running averages, dropout and a classifier: the parts of the usual networks."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.dropout(self.norm(self.conv(x)).relu().mean((2, 3))))

    def train_step(self, data, optimizer):
        loss = nn.functional.cross_entropy(self(data['x']), data['y'])
        return dict(loss=loss, log_vars=dict(loss=loss.item()), num_samples=len(data['y']))

    def val_step(self, data, optimizer=None):
        return self.train_step(data, optimizer)


def train(library, config, work_dir):
    """The weights after training as ``config`` says, and the learning rates on the way."""
    runner_module = importlib.import_module(f'{library}.runner')
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Net()
    data = [dict(x=torch.randn(1, 6, 6), y=torch.tensor(i % 3)) for i in range(8 * BATCHES)]
    logger = logging.getLogger('side_by_side')
    logger.setLevel(logging.ERROR)
    by_epoch = config['by_epoch']
    kind = dict(type='EpochBasedRunner', max_epochs=EPOCHS)
    if not by_epoch:
        kind = dict(type='IterBasedRunner', max_iters=BATCHES * EPOCHS)
    optimizer = runner_module.build_optimizer(model, dict(config['optimizer']))
    runner = runner_module.build_runner(
        kind, dict(model=model, optimizer=optimizer, work_dir=work_dir, logger=logger, meta={})
    )
    runner.register_training_hooks(
        lr_config=dict(config['lr_config']),
        optimizer_config=dict(config.get('optimizer_config', {})),
        checkpoint_config=None,
        log_config=None,
        # By default, MMCV counts momentum by epoch even in iteration runs.
        momentum_config=dict(config['momentum_config'], by_epoch=False) if 'momentum_config' in config else None,
        custom_hooks_config=[dict(each) for each in config.get('custom_hooks', [])],
    )
    rates = []

    class Watch(runner_module.Hook):
        def after_train_iter(self, runner):
            rates.append(float(runner.current_lr()[0]).hex())

    runner.register_hook(Watch(), priority='LOWEST')
    workflow = config.get('workflow', [('train', 1)])
    loaders = [torch.utils.data.DataLoader(data, batch_size=8) for _ in workflow]
    torch.manual_seed(1)
    runner.run(loaders, workflow)
    state = model.state_dict()
    if library == 'mmcv' and 'custom_hooks' in config:
        # MMCV leaves the averages under the model's own names after the last epoch, runnerkit the raw weights.
        for own in dict(model.named_parameters()):
            twin = f'ema_{own.replace(".", "_")}'
            state[own], state[twin] = state[twin], state[own]
    weights = {name: [float(x).hex() for x in value.flatten()] for name, value in state.items()}
    return dict(weights=weights, rates=rates)


def by_hand():
    """A training run without any library: bit-identical if machine and torch compute like those of the record."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Net()
    batch = dict(x=torch.randn(8, 1, 6, 6), y=torch.arange(8) % 3)
    for kind in (torch.optim.SGD, torch.optim.AdamW):
        optimizer = kind(model.parameters(), lr=0.01)
        for _ in range(10):
            optimizer.zero_grad()
            model.train_step(batch, optimizer)['loss'].backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
    return [float(x).hex() for value in model.state_dict().values() for x in value.flatten()]


def recorded():
    """The results of the real MMCV."""
    return json.loads(RECORDED.read_text(encoding='utf-8'))


def main(library, file=None):
    if library == 'mmcv':
        sys.modules['torchvision'] = types.ModuleType('torchvision')  # imported only for URLs of models
        time.sleep = lambda seconds: None  # two seconds before each epoch
    results = {'by hand': by_hand()}
    for name, config in SETUPS.items():
        with tempfile.TemporaryDirectory() as work_dir:
            results[name] = train(library, config, work_dir)
    if file is not None:
        lines = ',\n'.join(f'{json.dumps(name)}: {json.dumps(result)}' for name, result in results.items())
        pathlib.Path(file).write_text('{\n' + lines + '\n}\n', encoding='utf-8')
        return
    theirs = recorded()
    for name, result in results.items():
        print('equal    ' if result == theirs[name] else 'different', name)


if __name__ == '__main__':
    main(*sys.argv[1:])
