"""Where MMCV 1.x's modules lie here: the one place that knows its old paths.

Both sides are below the package: ``runnerkit.runner.dist_utils``, and, where `runnerkit.compat.install` was called,
``mmcv.runner.dist_utils``.
"""

from __future__ import annotations

_BASIC_HOOKS = ('closure', 'iter_timer', 'memory', 'sampler_seed', 'sync_buffer')

_TRACKERS = ('clearml', 'dvclive', 'mlflow', 'neptune', 'pavi', 'segmind', 'wandb')

#: One target: the same module object, also for everything below it. Several targets: a module with the names of all of
#: them. Modules with the same path on both sides are not listed.
ALIASES: dict[str, str | tuple[str, ...]] = {
    'device': 'compat.mmcv.device',
    'device.mlu._functions': 'compat.mmcv.device._functions',
    'device.mlu.data_parallel': 'compat.mmcv.device.mlu',
    'device.mlu.distributed': 'compat.mmcv.device.mlu',
    'device.mlu.scatter_gather': 'compat.mmcv.device.scatter_gather',
    'device.mps.data_parallel': 'compat.mmcv.device.mps',
    'device.npu.data_parallel': 'compat.mmcv.device.npu',
    'device.npu.distributed': 'compat.mmcv.device.npu',
    'engine': ('evaluation', 'distributed.collectives'),
    'engine.test': ('evaluation', 'distributed.collectives'),
    'fileio.handlers.base': 'fileio.handlers',
    'fileio.handlers.json_handler': 'fileio.handlers',
    'fileio.handlers.pickle_handler': 'fileio.handlers',
    'fileio.handlers.yaml_handler': 'fileio.handlers',
    'fileio.parse': 'fileio.io',
    'parallel._functions': 'compat.mmcv.parallel_functions',
    'parallel.registry': 'parallel.wrappers',
    'parallel.utils': 'parallel.wrappers',
    'runner.base_module': 'nn.base_module',
    'runner.checkpoint': (
        'checkpoint.loader',
        'checkpoint.schemes',
        'checkpoint.names',
        'checkpoint.state_dict',
        'checkpoint.content',
    ),
    'runner.default_constructor': 'runner.builder',
    'runner.dist_utils': ('distributed.launch', 'distributed.groups', 'distributed.collectives'),
    'runner.fp16_utils': 'nn.amp',
    'runner.hooks': 'hooks',
    'runner.hooks.logger': 'hooks.logger',
    **{f'runner.hooks.logger.{name}': 'hooks.logger.trackers' for name in _TRACKERS},
    **{f'runner.hooks.{name}': 'hooks.basic' for name in _BASIC_HOOKS},
    'runner.log_buffer': 'log_buffer',
    'runner.optimizer': 'optim',
    'runner.priority': 'hooks.hook',
    'runner.utils': ('utils.env', 'utils.imports', 'utils.seed'),
    'utils.config': ('config', 'config.action'),
    'utils.device_type': 'compat.mmcv.torch_layers',
    'utils.ext_loader': 'compat.mmcv.ext_loader',
    'utils.hub': 'checkpoint.schemes',
    'utils.misc': 'compat.mmcv.misc',
    'utils.parrots_jit': 'compat.mmcv.torch_layers',
    'utils.parrots_wrapper': 'compat.mmcv.torch_layers',
    'utils.path': ('utils.paths', 'compat.mmcv.misc'),
    'utils.progressbar': 'utils.progress',
    'utils.registry': 'registry',
    'utils.testing': 'compat.mmcv.testing',
    'utils.timer': 'compat.mmcv.timer',
    'utils.torch_ops': 'compat.mmcv.torch_layers',
    'utils.trace': 'compat.mmcv.torch_layers',
    'utils.version_utils': 'compat.mmcv.version_utils',
}

#: Modules that configs in work dirs of Vega's runs name by their former paths.
VEGA_ALIASES: dict[str, str] = {
    'search.datasets': 'compat.vega.datasets',
    'search.networks': 'compat.vega.networks',
    'search.vega': 'compat.vega.names',
}

#: Aliases below ``mmcv`` only: at this path runnerkit has another module, or none.
MMCV_ALIASES: dict[str, str] = {
    'cnn.utils.weight_init': 'nn.weight_init',
    'version': 'compat.mmcv.mmcv_version',
}


def homes_of(path: str) -> tuple[str, ...]:
    """Return our modules for the old ``path``, both relative to their package; empty if it is not an alias."""
    head, tail = path, ''
    while head:
        homes = ALIASES.get(head) or VEGA_ALIASES.get(head)
        if homes is not None and (not tail or isinstance(homes, str)):
            return (homes + tail,) if isinstance(homes, str) else homes
        head, _, last = head.rpartition('.')
        tail = f'.{last}{tail}'
    return ()
