"""Runs by config under FSDP2 that stop, roll back and are resumed; for `tests/flow/stages/test_sharded_runs.py`."""

import logging
import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path

import torch
from fsdp_runs import Net
from support import Logged
from torch import nn
from wrapping_runs import SEVERAL, SHARDED, Gan, Line, Networks, everything

from runnerkit.config import Config
from runnerkit.distributed import get_dist_info
from runnerkit.flow import Flow, Options
from runnerkit.hooks import HOOKS, Hook
from runnerkit.hooks.logger import HistoryHook
from runnerkit.parallel.dtensors import is_dtensor

#: 2 epochs of 5 iterations; the runs stop after the 8th, in the middle of the second epoch.
LENGTH, BATCH, EPOCHS, STOP = 40, 8, 2, 8


class Drawing(Net):
    """Draws random numbers on each rank."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.2)

    def forward(self, x):
        return super().forward(self.dropout(x))

    def predict(self, data):
        return self(data['x'])


class DrawingGan(Gan):
    def losses(self, data):
        noise = torch.randn_like(data['x']) * 0.1
        return super().losses({**data, 'x': data['x'] + noise})


@HOOKS.register_module(force=True)
class Disturbs(Hook):
    """Stops the run after so many iterations, by itself or by a signal to the last rank; or spoils the weights."""

    def __init__(self, stop=None, signal=False, spoil=None):
        self.ends, self.by_signal, self.spoils = stop, signal, spoil

    def after_train_iter(self, runner):
        if runner.iter + 1 == self.ends:
            if not self.by_signal:
                runner.stop('enough')
            elif runner.rank == runner.world_size - 1:
                os.kill(os.getpid(), signal.SIGTERM)
                deadline = time.monotonic() + 100
                while not runner.is_ending and time.monotonic() < deadline:  # the run has few iterations left
                    time.sleep(0.01)
        if runner.iter + 1 == self.spoils:
            self.spoils = None
            with torch.no_grad():
                for parameter in runner.model.parameters():
                    parameter.mul_(float('nan'))


@HOOKS.register_module(force=True)
class CannotSave(Hook):
    """Has no state for a checkpoint on the last rank, or fails there when one is to be saved."""

    def __init__(self, ring):
        self.ring = ring

    def state_dict(self):
        self.check(not self.ring)
        return {}

    @contextmanager
    def around_save(self, runner):
        self.check(self.ring)
        yield

    def check(self, fails):
        rank, world_size = get_dist_info()
        if fails and rank == world_size - 1:
            raise ArithmeticError('nothing to save')


GAN = {'model': {'type': 'sharded_runs.DrawingGan'}}
VALIDATED = {'evaluation': {'interval': 1, 'save_best': 'error', 'rule': 'less'}}
EMA = {'custom_hooks': [{'type': 'EMAHook', 'momentum': 0.2, 'priority': 'ABOVE_NORMAL'}]}
ADAMW = {'optimizer': {'type': 'AdamW', 'lr': 0.01}, 'optimizer_config': {'fused': 'auto'}}
CYCLE = {'optimizer_config': {'cumulative_iters': 3}}
ASYNC = {'checkpoint_config': {'interval': 2, 'by_epoch': False, 'async_save': True}}

#: What each run's config has beside the common rest. The 8th iteration is in the middle of a cycle of three.
CASES = {
    'plain': {},
    'averages and best': {**EMA, **VALIDATED},
    'modes': {**GAN, 'optimizer': SEVERAL, 'workflow': [('dis', 1), ('gen', 1)], 'runner': {'max_epochs': 3}},
    'fused, async': {**ADAMW, **ASYNC},
    'cycle': CYCLE,
}

#: What these join is in `CASES` one by one.
JOINED = {
    'several': {**GAN, 'optimizer': SEVERAL},
    'cycle, fused, async': {
        'optimizer': ADAMW['optimizer'],
        'optimizer_config': {'cumulative_iters': 3, 'fused': 'auto'},
        **ASYNC,
    },
    'cycle, low': {**CYCLE, 'model_wrapper': {**SHARDED, 'mp_policy': {'param_dtype': 'bf16', 'reduce_dtype': 'fp32'}}},
}


def config(name, **changes):
    case = {**{**CASES, **JOINED}.get(name, {}), **changes}
    runner = {'type': 'EpochBasedRunner', 'max_epochs': EPOCHS, **case.pop('runner', {})}
    return {
        'model': {'type': 'sharded_runs.Drawing'},
        'model_wrapper': SHARDED,
        'data': {
            'samples_per_gpu': BATCH // get_dist_info()[1],
            'train': {'type': 'wrapping_runs.Points', 'length': LENGTH},
            'val': {'type': 'wrapping_runs.Points', 'length': 7},
        },
        'optimizer': {'type': 'SGD', 'lr': 0.05, 'momentum': 0.9},
        'optimizer_config': {},
        'lr_config': {'policy': 'CosineAnnealing', 'min_lr': 0.0, 'by_epoch': False},
        'runner': runner,
        'checkpoint_config': {'interval': 1000, 'by_epoch': False},
        'flow': {'terminal': None},
        'evaluation': None,
        'log_config': {'interval': 1, 'hooks': [{'type': 'TextLoggerHook'}]},
        'seed': 3,
        **case,
    }


def plain(value):
    """Containers of whole tensors."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value.full_tensor().clone() if is_dtensor(value) else value


def states(optimizer):
    if isinstance(optimizer, dict):
        return {name: plain(each.state_dict()['state']) for name, each in optimizer.items()}
    return plain(optimizer.state_dict()['state'])


def run(work_dir, cfg, disturb=None, *hooks, **options):
    """What became of a run by config."""
    if disturb is not None:
        cfg = {**cfg, 'custom_hooks': [*cfg.get('custom_hooks', []), {'type': 'Disturbs', **disturb}, *hooks]}
    history = HistoryHook()
    flow = Flow(Config(cfg), Options(work_dir=str(work_dir), device='cpu', **options))
    flow.context.hooks.append((history, 'VERY_LOW'))
    with Logged(logging.NOTSET) as told:
        flow.run()
    runner = flow.context.runner
    return {
        'weights': everything(runner.model),
        'optimizer': states(runner.optimizer),
        'scores': {key: score.value for key, score in runner.scores.items()},
        'iters': runner.completed_iters,
        'outcome': runner.outcome.kind,
        'told': told.texts,
        'rows': [{key: value for key, value in row.items() if 'time' not in key} for row in history.records],
    }


def resumed(folder, name):
    """An undisturbed run; one that stops in the middle of an epoch, and is resumed by ``--auto-resume``."""
    whole = run(folder / f'{name} whole', config(name))
    begun = run(folder / name, config(name), {'stop': STOP})
    return whole, begun, run(folder / name, config(name), {}, auto_resume=True)


DDP = {'model_wrapper': {'type': 'DDP'}}
#: Without random numbers, so that one wrapper's run is near the other's.
STILL = {'model': {'type': 'fsdp_runs.Net'}}


def between(folder, name, one, other):
    """Begun with one wrapper, and resumed with the other in the middle of an epoch and of a cycle."""
    whole = run(folder / f'{name} whole', config('cycle', **STILL, **one))
    begun = run(folder / name, config('cycle', **STILL, **one), {'stop': STOP})
    return whole, begun, run(folder / name, config('cycle', **STILL, **other), {}, auto_resume=True)


def loaded(folder):
    """The weights of a file and of a folder, as a sharded run begins with them."""
    run(folder / 'file', config('plain', **DDP))
    still = {'optimizer': {'type': 'SGD', 'lr': 0.0}, 'runner': {'max_epochs': 1}}
    return [
        run(folder / f'from {name}', config('plain', **still), load_from=str(folder / name / 'latest.pth'))['weights']
        for name in ('file', 'plain')
    ]


def rolled_back(folder):
    """The weights are spoilt within a cycle, whose kept gradients must not come into what follows."""
    hook = {'type': 'NonFiniteHook', 'action': 'rollback', 'priority': 'VERY_LOW'}
    cfg = config('cycle', checkpoint_config={'interval': 2, 'by_epoch': False})
    return run(folder / 'back', cfg, {'spoil': 9}, hook)


def refused(folder):
    """The errors of saves within a cycle that fail on one rank."""
    found = []
    for ring in (False, True):
        changes = {'checkpoint_config': {'interval': 2, 'by_epoch': False}, 'runner': {'max_epochs': 1}}
        try:
            run(folder / 'refused', config('cycle', custom_hooks=[{'type': 'CannotSave', 'ring': ring}], **changes))
        except (ArithmeticError, RuntimeError) as error:
            found.append(str(error))
    return found


def experiment(kind, folder, iterations, wrapper=SHARDED):
    """An experiment that saves after every second iteration, and goes on from what it finds."""
    training = {'max_iteration': iterations, 'valid_interval': 2, 'log_interval': 1, 'save_interval': 2}
    made = kind({'seed': 3, 'training': training, 'model_wrapper': wrapper}, {'output': str(folder), 'device': 'cpu'})
    made.setup()
    made.resume_or_load()
    begun = made.completed_iters
    made.run()
    parts = made.model.items() if isinstance(made.model, nn.ModuleDict) else [('', made.model)]
    weights = {f'{name}.{key}': each for name, part in parts for key, each in everything(part).items()}
    return {'weights': weights, 'optimizer': states(made.optimizer), 'begun': begun}


def experiments(folder):
    found = {}
    for kind in (Line, Networks):
        place = folder / kind.__name__
        whole = experiment(kind, place.with_name(f'{kind.__name__} whole'), 6)
        experiment(kind, place, 3)
        found[kind.__name__] = whole, experiment(kind, place, 6)
    return found


def joined_on(rank, folder):
    folder = Path(folder)
    return {**{name: resumed(folder, name) for name in JOINED}, 'to DDP': between(folder, 'to DDP', {}, DDP)}


def everything_on(rank, folder):
    folder = Path(folder)
    found = {name: resumed(folder, name) for name in CASES}
    found['to FSDP2'] = between(folder, 'to FSDP2', DDP, {})
    found['loaded'] = loaded(folder)
    found['back'] = rolled_back(folder)
    found['refused'] = refused(folder)
    found['experiments'] = experiments(folder)
    found['signal'] = (
        run(folder / 'signal', config('plain'), {'stop': STOP, 'signal': True}),
        run(folder / 'signal', config('plain'), {}, auto_resume=True),
    )
    return found
