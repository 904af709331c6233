"""A hook-driven training engine in the MMCV style, on today's PyTorch.

The packages; each imports only those above it::

    utils/          logging, environment, seeds, paths, `report`
    fileio/         load and dump by format, storages, files by URL
    registry.py     Registry, build_from_cfg
    config/         Config, ConfigDict, DictAction
    distributed/    launching, collectives, collecting results
    parallel/       model wrappers, batches in containers
    checkpoint/     saving atomically, loading without running code
    nn/             BaseModule, weight initialisation, Supervised
    optim/          optimizers and schedules by name, the update
    data/           loaders, samplers, seeded samples
    evaluation.py   predictions and scores
    log_buffer.py   values between two log lines
    log_files.py    the lines of a log
    hooks/          one behaviour per file
    runner/         EpochBasedRunner, IterBasedRunner
    flow/           the five stages of a run
    cli/            what the tools call

    compat/         MMCV's old module paths, and unchanged scripts

The names below are imported at their first use, so that ``import runnerkit`` is fast. As in MMCV, the names of
`runnerkit.utils` and `runnerkit.fileio` are also available here.
"""

from importlib import import_module
from typing import Any

from runnerkit.compat.finder import install as _install_aliases
from runnerkit.version import __version__

_install_aliases()

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


#: Packages that are attributes without being imported explicitly.
_PARTS = ('config', 'data', 'distributed', 'fileio', 'hooks', 'nn', 'optim', 'parallel', 'runner', 'utils')


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _PARTS:
        return import_module(f'{__name__}.{name}')
    for home in (import_module('runnerkit.utils'), import_module('runnerkit.fileio')):
        if name in home.__all__:
            return getattr(home, name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
