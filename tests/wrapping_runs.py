"""Whole runs by config with a wrapper around the model, for `tests/flow/stages/test_wrapping.py`."""

import logging
import math
import sys
from types import SimpleNamespace

import torch
from fsdp_runs import Block, Net
from support import Logged
from torch import nn
from torch.utils.data import Dataset

from runnerkit.config import Config
from runnerkit.distributed import get_dist_info
from runnerkit.flow import Experiment, Flow, Options
from runnerkit.hooks.logger import HistoryHook
from runnerkit.parallel import FSDP2, MODULE_WRAPPERS, unwrap


class Points(Dataset):
    """Samples that their index determines; with ``bad``, the one of that index is NaN."""

    def __init__(self, length=16, bad=None):
        self.length, self.bad = length, bad

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(int(index))
        x = torch.randn(2, generator=generator)
        if index == self.bad:
            x = x * math.nan
        return {'x': x, 'y': torch.randn(1, generator=generator)}


class Gan(nn.Module):
    """Two networks; a step for each in a workflow, or one for both."""

    def __init__(self):
        super().__init__()
        self.gen = nn.Sequential(nn.Linear(2, 6), Block(6), nn.Linear(6, 1))
        self.dis = nn.Sequential(nn.Linear(1, 6), Block(6), nn.Linear(6, 1))

    def losses(self, data):
        fake = self.gen(data['x'])
        dis = (self.dis(data['y']) - 1).pow(2).mean() + self.dis(fake.detach()).pow(2).mean()
        return {'gen': (self.dis(fake) - 1).pow(2).mean(), 'dis': dis}

    def train_step(self, data, optimizer):
        losses = self.losses(data)
        return {'loss': losses, 'log_vars': {'total': sum(losses.values()).detach()}, 'num_samples': len(data['x'])}

    def gen_step(self, data, optimizer):
        return {'loss': self.losses(data)['gen'], 'num_samples': len(data['x'])}

    def dis_step(self, data, optimizer):
        return {'loss': self.losses(data)['dis'], 'num_samples': len(data['x'])}


class Line(Experiment):
    """The net as an experiment, which updates by itself."""

    def setup_dataloader(self):
        from runnerkit.data import build_dataloader

        rank, world_size = get_dist_info()
        self.train_loader = build_dataloader(Points(), 8 // world_size, 0, dist=world_size > 1, seed=0)
        self.valid_loader = build_dataloader(Points(8), 8 // world_size, 0, dist=world_size > 1, shuffle=False)

    def setup_model(self):
        self.model = Net()
        self.optimizer = torch.optim.Adagrad(self.model.parameters(), lr=0.1)

    def train_batch(self):
        data = self.read_batch()
        loss = (self.model(data['x']) - data['y']).pow(2).mean()
        self.update(loss)
        return {'loss': loss, 'weight': unwrap(self.model).head.weight.norm()}  # of sharded weights, a DTensor

    def valid(self):
        losses = [(self.model(data['x']) - data['y']).pow(2).mean() for data in self.valid_loader]
        return {'error': sum(losses) / len(losses)}


class Networks(Line):
    """Two networks that are called one by one, each with an optimizer of its own."""

    def setup_model(self):
        gan = Gan()
        self.model = nn.ModuleDict({'gen': gan.gen, 'dis': gan.dis})
        self.optimizer = {name: torch.optim.Adam(part.parameters(), lr=0.01) for name, part in self.model.items()}

    def train_batch(self):
        data = self.read_batch()
        fake = self.model['gen'](data['x'])
        loss = (self.model['dis'](data['y']) - 1).pow(2).mean() + self.model['dis'](fake.detach()).pow(2).mean()
        self.update(loss, 'dis')
        self.update((self.model['dis'](fake) - 1).pow(2).mean(), 'gen')

    valid = Experiment.valid


SHARDED = {'type': 'FSDP2', 'module_classes': ['Block']}
CLIP = {'grad_clip': {'max_norm': 0.05}}
SGD = {'type': 'SGD', 'lr': 0.1}
SEVERAL = {'gen': {'type': 'Adam', 'lr': 0.01}, 'dis': {'type': 'SGD', 'lr': 0.01}}
GAN = {'model': {'type': 'wrapping_runs.Gan'}}

#: What each run's config has beside the common rest.
CASES = {
    'plain': {},
    'again': {},
    'clip': {'optimizer_config': CLIP, 'optimizer': {**SGD, 'momentum': 0.9}},
    'clip by largest': {'optimizer_config': {'grad_clip': {'max_norm': 0.05, 'norm_type': math.inf}}},
    'accumulate': {'optimizer_config': {'cumulative_iters': 2, **CLIP}},
    'ema': {
        'custom_hooks': [{'type': 'EMAHook', 'momentum': 0.2, 'priority': 'ABOVE_NORMAL'}],
        'evaluation': {'interval': 1},
    },
    'paramwise': {
        'optimizer': {**SGD, 'paramwise_cfg': {'bias_lr_mult': 0.5, 'custom_keys': {'stem': {'lr_mult': 0}}}}
    },
    'fused': {'optimizer': {'type': 'AdamW', 'lr': 0.01}, 'optimizer_config': {'fused': 'auto'}},
    'fused sgd': {'optimizer': {**SGD, 'fused': True}},
    'frozen': {'custom_hooks': [{'type': 'FreezeHook', 'patterns': ['stem.*'], 'until': 1}]},
    'compiled': {'compile': {'backend': 'aot_eager'}},
    'bf16': {'amp': 'bf16'},
    'fp16': {'amp': 'fp16', 'optimizer_config': CLIP},
    'modes': {**GAN, 'workflow': [('dis', 1), ('gen', 1)], 'optimizer': SEVERAL, 'optimizer_config': CLIP},
    'one optimizer': {**GAN, 'workflow': [('dis', 1), ('gen', 1)]},
    'losses': {**GAN, 'optimizer': SEVERAL},
}


def config(name, world_size=2, **changes):
    return {
        'model': {'type': 'fsdp_runs.Net'},
        'data': {
            'samples_per_gpu': 8 // world_size,
            'train': {'type': 'wrapping_runs.Points'},
            'val': {'type': 'wrapping_runs.Points', 'length': 8},
        },
        'optimizer': SGD,
        'optimizer_config': {},
        'runner': {'type': 'EpochBasedRunner', 'max_epochs': 2},
        'checkpoint_config': None,
        'flow': {'terminal': None},
        'evaluation': None,
        'log_config': {'interval': 1, 'hooks': [{'type': 'TextLoggerHook'}]},
        'seed': 3,
        **CASES.get(name, {}),
        **changes,
    }


def run(work_dir, cfg):
    """The runner of a run by config, its log and its history."""
    history = HistoryHook()
    flow = Flow(cfg if isinstance(cfg, Config) else Config(cfg), Options(work_dir=str(work_dir), device='cpu'))
    flow.context.hooks.append((history, 'VERY_LOW'))
    with Logged(logging.NOTSET) as told:
        flow.run()
    return flow.context.runner, told.texts, history


def everything(model):
    """Parameters and buffers by name, whole, wherever they are sharded."""
    return {
        name.replace('module.', ''): (each.full_tensor() if hasattr(each, 'full_tensor') else each).detach().clone()
        for name, each in unwrap(model).state_dict().items()
    }


def case(work_dir, name, **changes):
    runner, told, history = run(work_dir, config(name, get_dist_info()[1], **changes))
    return {
        'weights': everything(runner.model),
        'told': told,
        'rows': [{key: value for key, value in row.items() if 'time' not in key} for row in history.records],
        'scores': {key: score.value for key, score in runner.scores.items()},
    }


def on_rank(rank, folder):
    """The cases under each wrapper."""
    found = {}
    for wrapper, names in (('DDP', ('plain', 'again', 'accumulate')), ('FSDP2', [*CASES])):
        for name in names:
            if name != 'compiled':
                found[wrapper, name] = wrapped_case(folder, wrapper, name)
    return found


def compiled_on_rank(rank, folder):
    """The case that is compiled, which takes as long as all others."""
    return {(wrapper, 'compiled'): wrapped_case(folder, wrapper, 'compiled') for wrapper in ('DDP', 'FSDP2')}


def wrapped_case(folder, wrapper, name):
    section = SHARDED if wrapper == 'FSDP2' else {'type': wrapper}
    return case(f'{folder}/{wrapper}-{name}', name, model_wrapper=section)


def finite_config(action, **changes):
    hook = {'type': 'NonFiniteHook', 'action': action}
    return config(
        'non finite',
        get_dist_info()[1],
        data={
            'samples_per_gpu': 8 // get_dist_info()[1],
            'train': {'type': 'wrapping_runs.Points', 'bad': 3},
        },
        custom_hooks=[hook],
        **changes,
    )


class Scaled(FSDP2):
    """A user's own wrapper."""

    def __init__(self, module, factor=1.0):
        super().__init__(module, module_classes=['Block'])
        self.factor = factor

    def train_step(self, *inputs, **kwargs):
        outputs = super().train_step(*inputs, **kwargs)
        return {**outputs, 'loss': outputs['loss'] * self.factor}


class Stepless(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module


MODULE_WRAPPERS.register_module(module=Scaled, force=True)
MODULE_WRAPPERS.register_module(module=Stepless, force=True)


class WithTensor(Net):
    """Has an object with a tensor that is neither a parameter nor a buffer."""

    def __init__(self):
        super().__init__()
        self.kept = SimpleNamespace(anchors=[torch.randn(2)])

    def forward(self, x):
        return super().forward(x + self.kept.anchors[0])


class NeedsNumbers(Net):
    """Cannot be built without numbers."""

    def __init__(self):
        super().__init__()
        self.factor = torch.rand(()).item()

    def forward(self, x):
        return super().forward(x * self.factor)


class Initialised(Net):
    """Has more than its weights from its initialisation."""

    def init_weights(self):
        nn.init.constant_(self.stem.weight, 0.1)
        self.blocks[0].requires_grad_(False)
        self.factor = 0.5

    def forward(self, x):
        return super().forward(x) * self.factor


SUPERVISED = {
    'type': 'Supervised',
    'model': {'type': 'fsdp_runs.Net'},
    'inputs': 'x',
    'targets': 'y',
    'loss': {'type': 'MSELoss'},
    'metrics': {'mse': {'type': 'MeanSquaredError'}},
}

#: Further cases, of which each rank tells what the single process does.
MORE = {
    'skip': lambda: finite_config('skip', optimizer={'type': 'SGD', 'lr': 0.1, 'momentum': 0.9}),
    'skip fused': lambda: finite_config('skip', optimizer={'type': 'AdamW', 'lr': 0.01, 'fused': True}),
    'with tensor': lambda: config('', get_dist_info()[1], model={'type': 'wrapping_runs.WithTensor'}),
    'initialised': lambda: config('', get_dist_info()[1], model={'type': 'wrapping_runs.Initialised'}),
    'needs numbers': lambda: config('', get_dist_info()[1], model={'type': 'wrapping_runs.NeedsNumbers'}),
    'supervised': lambda: config('', get_dist_info()[1], model=SUPERVISED, evaluation={'interval': 1}),
    'old keys': lambda: config('', get_dist_info()[1], find_unused_parameters=True, broadcast_buffers=False),
}


def more(folder, name, **changes):
    runner, told, history = run(f'{folder}/{name}', {**MORE[name](), **changes})
    return {
        'weights': everything(runner.model),
        'told': told,
        'rows': [{key: value for key, value in row.items() if 'time' not in key} for row in history.records],
    }


def experiment(kind, folder, **changes):
    made = kind(
        {'seed': 3, 'training': {'max_iteration': 4, 'valid_interval': 2, 'log_interval': 1}, **changes},
        {'output': str(folder), 'device': 'cpu'},
    )
    history = HistoryHook()
    made.setup()
    made.register_hook(history, priority='VERY_LOW')
    made.hooks.remove(made._checkpointer)
    made.run()
    model = made.model
    parts = model.items() if isinstance(model, nn.ModuleDict) else [('', model)]
    found = {f'{name}.{key}'.strip('.'): each for name, part in parts for key, each in everything(part).items()}
    rows = [{key: value for key, value in row.items() if 'time' not in key} for row in history.records]
    return {'weights': found, 'rows': rows}


def refused(folder, name, cfg):
    try:
        run(f'{folder}/{name}', cfg)
    except Exception as error:
        return f'{type(error).__name__}: {error}'
    return ''


def more_on_rank(rank, folder):
    found = {name: more(folder, name, model_wrapper=SHARDED) for name in MORE}
    found['own wrapper'] = case(f'{folder}/own', 'plain', model_wrapper={'type': 'Scaled', 'factor': 2.0})
    for kind in (Line, Networks):
        found[kind.__name__] = experiment(kind, f'{folder}/{kind.__name__}', model_wrapper=SHARDED)
    found['stop'] = refused(folder, 'stop', finite_config('stop', model_wrapper=SHARDED))
    for name, section in (
        ('stepless', {'type': 'Stepless'}),
        ('class', {**SHARDED, 'module_classes': ['Blok']}),
        ('not taken', {'type': 'Scaled', 'facto': 2.0}),
    ):
        found[name] = refused(folder, name, config(name, model_wrapper=section))
    return found


#: What each rank's batch norms have of their own.
BUFFERS = {'running_mean', 'running_var', 'num_batches_tracked'}


def of_files(rank, folder, names, changes):
    """The loss and the sum of the weights after a run of each of these config files, and the wrapper's class."""
    sys.path.insert(0, str(folder))
    found = {}
    for name in names:
        cfg = Config.fromfile(f'{folder}/{name}.py')
        cfg.merge_from_dict(changes)
        runner, _, history = run(f'{folder}/run_{name}', cfg)
        weights = everything(runner.model)
        total = sum(
            each.double().abs().sum().item() for key, each in weights.items() if not BUFFERS & {*key.split('.')}
        )
        found[name] = {
            'loss': [row['loss'] for row in history.records if row['mode'] == 'train'][-1],
            'weights': total,
            'class': type(runner.model).__name__,
        }
    return found
