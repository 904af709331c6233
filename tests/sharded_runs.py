"""Runs by config under FSDP2 that stop, are stopped, go back and are resumed; for `tests/flow/test_sharded_runs.py`."""

import logging
import os
import signal
from pathlib import Path

import torch
from fsdp_runs import Net
from torch import nn
from wrapping_runs import SEVERAL, SHARDED, Gan, Line, Networks, Points, Told, everything

from runnerkit.config import Config
from runnerkit.distributed import get_dist_info
from runnerkit.flow import Flow, Options
from runnerkit.hooks import HOOKS, Hook
from runnerkit.hooks.logger import HistoryHook
from runnerkit.parallel.dtensors import is_dtensor

#: 3 epochs of 5 iterations; the runs stop after the 8th, in the middle of the second epoch.
LENGTH, BATCH, EPOCHS, STOP = 40, 8, 3, 8


class Drawing(Net):
    """Draws random numbers on each rank."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.2)

    def forward(self, x):
        return super().forward(self.dropout(x))


class DrawingGan(Gan):
    def losses(self, data):
        noise = torch.randn_like(data['x']) * 0.1
        return super().losses({**data, 'x': data['x'] + noise})


@HOOKS.register_module(force=True)
class Disturbs(Hook):
    """Stops the run after so many iterations: by itself, or by a signal to the last rank alone; or spoils the weights."""

    def __init__(self, stop=None, signal=False, spoil=None):
        self.stop, self.signal, self.spoil = stop, signal, spoil

    def after_train_iter(self, runner):
        if runner.iter + 1 == self.stop:
            if not self.signal:
                runner.stop('enough')
            elif runner.rank == runner.world_size - 1:
                os.kill(os.getpid(), signal.SIGTERM)
        if runner.iter + 1 == self.spoil:
            self.spoil = None
            with torch.no_grad():
                for parameter in runner.model.parameters():
                    parameter.mul_(float('nan'))


GAN = {'model': {'type': 'sharded_runs.DrawingGan'}}
VALIDATED = {'evaluation': {'interval': 1, 'save_best': 'error', 'rule': 'less'}}
EMA = {'custom_hooks': [{'type': 'EMAHook', 'momentum': 0.2, 'priority': 'ABOVE_NORMAL'}]}
ADAMW = {'optimizer': {'type': 'AdamW', 'lr': 0.01}, 'optimizer_config': {'fused': 'auto'}}
CYCLE = {'optimizer_config': {'cumulative_iters': 3}}

#: What each run's config has beside the common rest. The 8th iteration is in the middle of a cycle of three.
CASES = {
    'plain': {},
    'averages and best': {**EMA, **VALIDATED},
    'several': {**GAN, 'optimizer': SEVERAL},
    'modes': {**GAN, 'optimizer': SEVERAL, 'workflow': [('dis', 1), ('gen', 1)], 'runner': {'max_epochs': 4}},
    'fused': ADAMW,
    'async': {**ADAMW, 'checkpoint_config': {'interval': 2, 'by_epoch': False, 'async_save': True}},
    'cycle': CYCLE,
    'cycle fused': {**CYCLE, **ADAMW},
    'cycle low': {**CYCLE, 'model_wrapper': {**SHARDED, 'mp_policy': {'param_dtype': 'bf16', 'reduce_dtype': 'fp32'}}},
}


def config(name, **changes):
    case = {**CASES.get(name, {}), **changes}
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
        'checkpoint_config': {'interval': 100, 'by_epoch': False},
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


def run(work_dir, cfg, disturb=None, **options):
    """What became of a run by config."""
    if disturb is not None:
        cfg = {**cfg, 'custom_hooks': [*cfg.get('custom_hooks', []), {'type': 'Disturbs', **disturb}]}
    told, history = Told(), HistoryHook()
    logging.getLogger('runnerkit').addHandler(told)
    flow = Flow(Config(cfg), Options(work_dir=str(work_dir), device='cpu', **options))
    flow.context.hooks.append((history, 'VERY_LOW'))
    try:
        flow.run()
    finally:
        logging.getLogger('runnerkit').removeHandler(told)
    runner = flow.context.runner
    return {
        'weights': everything(runner.model),
        'optimizer': states(runner.optimizer),
        'scores': {key: score.value for key, score in runner.scores.items()},
        'iters': runner.completed_iters,
        'outcome': runner.outcome.kind,
        'told': told.lines,
        'rows': [{key: value for key, value in row.items() if 'time' not in key} for row in history.records],
    }


def resumed(folder, name):
    """An undisturbed run; one that stops in the middle of an epoch, and is resumed by ``--auto-resume``."""
    whole = run(folder / f'{name} whole', config(name))
    begun = run(folder / name, config(name), {'stop': STOP})
    return whole, begun, run(folder / name, config(name), {}, auto_resume=True)


def everything_on(rank, folder):
    folder = Path(folder)
    found = {name: resumed(folder, name) for name in CASES}
    return found
