"""A hook-driven training engine in the MMCV style, on today's PyTorch.

Where things are, each folder building only on those above it::

    utils/          logging, environment, seeds, paths, `report`
    fileio/         load and dump by format, files by URL
    registry.py     Registry, build_from_cfg
    config/         Config, ConfigDict, DictAction
    distributed/    joining processes, talking, collecting results
    parallel/       model wrappers
    checkpoint/     what is saved, written whole, read without running code
    nn/             BaseModule, weight initialisation, Supervised
    optim/          optimizers and schedules by name, the update
    data/           loaders, samplers, seeded samples
    evaluation.py   predictions and scores
    hooks/          one behaviour a file
    runner/         EpochBasedRunner, IterBasedRunner
    flow/           the five stages of a run
    cli/            what the tools call

The names below are imported when they are first used, so that ``import runnerkit`` costs next to nothing.
"""

from importlib import import_module
from typing import Any

from runnerkit.version import __version__

_HOMES = {
    'Config': 'runnerkit.config',
    'ConfigDict': 'runnerkit.config',
    'DictAction': 'runnerkit.config',
    'Registry': 'runnerkit.registry',
    'build_from_cfg': 'runnerkit.registry',
    'EpochBasedRunner': 'runnerkit.runner',
    'IterBasedRunner': 'runnerkit.runner',
    'build_runner': 'runnerkit.runner',
    'HOOKS': 'runnerkit.hooks',
    'Hook': 'runnerkit.hooks',
    'MODELS': 'runnerkit.nn',
    'DATASETS': 'runnerkit.data',
    'build_dataloader': 'runnerkit.data',
    'build_optimizer': 'runnerkit.optim',
    'load_checkpoint': 'runnerkit.checkpoint',
    'report': 'runnerkit.utils.report',
}

__all__ = ['__version__', *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
