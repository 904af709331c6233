"""Plans of small runs for the checks of the preflight: a good one, and changes of it."""

import copy

import torch
from support import Noisy, Tiny

from runnerkit.config import Config
from runnerkit.data import build_dataloader
from runnerkit.flow import Context, Network, Options, Runner
from runnerkit.flow.preflight import Plan, find
from runnerkit.nn import MODELS

#: Three epochs of five iterations.
CONFIG = {
    'model': {
        'type': 'Supervised',
        'model': [
            {'type': 'Linear', 'in_features': 4, 'out_features': 8},
            {'type': 'Linear', 'in_features': 8, 'out_features': 1},
        ],
        'loss': {'type': 'MSELoss'},
        'metrics': {'error': {'type': 'MeanSquaredError'}},
    },
    'data': {'samples_per_gpu': 4, 'train': {'type': 'support.Noisy'}, 'val': {'type': 'support.Noisy', 'length': 6}},
    'optimizer': {'type': 'SGD', 'lr': 0.1, 'momentum': 0.9},
    'optimizer_config': {},
    'lr_config': {'policy': 'step', 'step': [2]},
    'runner': {'type': 'EpochBasedRunner', 'max_epochs': 3},
    'checkpoint_config': {'interval': 1},
    'evaluation': {'interval': 1, 'save_best': 'error'},
    'log_config': {'interval': 2, 'hooks': [{'type': 'TextLoggerHook'}]},
    'workflow': [('train', 1)],
}

#: The same for an iteration runner: 15 iterations.
BY_ITER = {
    'runner': {'type': 'IterBasedRunner', 'max_iters': 15},
    'lr_config': {'policy': 'step', 'step': [10]},
    'checkpoint_config': {'interval': 5},
    'evaluation': {'interval': 5},
}


@MODELS.register_module()
class PlanTiny(Tiny):
    """A model without metrics, whose parameters may be frozen."""

    def __init__(self, frozen=False):
        super().__init__()
        self.requires_grad_(not frozen)


@MODELS.register_module()
class PlanBlind(torch.nn.Linear):
    """A model that cannot validate."""

    def __init__(self):
        super().__init__(4, 1)

    def train_step(self, data, optimizer):
        return {'loss': self(data[0]).mean(), 'log_vars': {}, 'num_samples': 4}


@MODELS.register_module()
class PlanNoOptimizer(PlanBlind):
    """A model whose step has one parameter too few."""

    def train_step(self, data):
        return {'loss': self(data[0]).mean(), 'log_vars': {}, 'num_samples': 4}


@MODELS.register_module()
class PlanStepper(PlanBlind):
    """A model whose step updates the weights itself."""

    def train_step(self, data, optimizer):
        loss = self(data[0]).mean()
        loss.backward()
        optimizer.step()
        return {'loss': loss, 'log_vars': {}, 'num_samples': 4}


def config(*changes):
    """`CONFIG` with each of ``changes``: values by dotted key; ``...`` removes a key."""
    values = copy.deepcopy(CONFIG)
    for change in changes:
        for key, value in change.items():
            *path, last = key.split('.')
            node = values
            for step in path:
                node = node.setdefault(step, {}) if isinstance(node, dict) else node[int(step)]
            if value is ...:
                del node[last]
            else:
                node[last] = copy.deepcopy(value) if isinstance(value, (dict, list)) else value
    return Config(values)


def plan(work_dir, *changes, options=None, length=20):
    """The plan of the changed config, with everything built as a flow does."""
    cfg = config(*changes)
    workflow = [tuple(entry) for entry in cfg.get('workflow', [])]
    loader = {
        'train': build_dataloader(Noisy(length), 4, 0, seed=1),
        'val': build_dataloader(Noisy(6), 4, 0, shuffle=False, seed=1),
    }
    context = Context(cfg, options or Options(), work_dir=work_dir, workflow=workflow)
    context.loaders = [loader['val' if mode == 'val' else 'train'] for mode, _ in workflow]
    if cfg.get('evaluation') is not None:
        context.val_loader = loader['val']
    network, runner = Network(context), Runner(context)
    for stage in (network.build_model, network.build_optimizer, runner.build_runner, runner.register_hooks):
        stage(context)
    return Plan.of(context)


def said(of):
    """The findings about a plan, as (level, key) and text."""
    return [((each.level, each.key), str(each)) for each in find(of)]


def told(of, level, key, words):
    """Whether one of the findings about a plan has this level, key and text."""
    return any(where == (level, key) and words in text for where, text in said(of))


def of_config(*changes, options=None):
    """The plan of a config from which nothing is built."""
    return Plan(cfg=config(*changes), options=options or Options())
