"""Where MMCV 1.x's modules lie here: the one place that knows its old paths.

Both sides are below the package: ``runnerkit.runner.dist_utils``, and, where `runnerkit.compat.install` was called,
``mmcv.runner.dist_utils``.
"""

from __future__ import annotations

#: One target: the same module object, also for everything below it. Several targets: a module with the names of all of
#: them. Modules with the same path on both sides are not listed.
ALIASES: dict[str, str | tuple[str, ...]] = {
    'device': 'compat.device',
    'device.mlu._functions': 'compat.device._functions',
    'device.mlu.data_parallel': 'compat.device.mlu',
    'device.mlu.distributed': 'compat.device.mlu',
    'device.mlu.scatter_gather': 'compat.device.scatter_gather',
    'device.mps.data_parallel': 'compat.device.mps',
    'device.npu.data_parallel': 'compat.device.npu',
    'device.npu.distributed': 'compat.device.npu',
    'engine': ('evaluation', 'distributed.results'),
    'engine.test': ('evaluation', 'distributed.results'),
    'fileio.handlers.base': 'fileio.handlers',
    'fileio.handlers.json_handler': 'fileio.handlers',
    'fileio.handlers.pickle_handler': 'fileio.handlers',
    'fileio.handlers.yaml_handler': 'fileio.handlers',
    'fileio.parse': 'fileio.io',
    'parallel.registry': 'parallel.wrappers',
    'parallel.utils': 'parallel.wrappers',
    'runner.base_module': 'nn.base_module',
    'runner.checkpoint': (
        'checkpoint.loader',
        'checkpoint.schemes',
        'checkpoint.model_zoo',
        'checkpoint.hub',
        'checkpoint.names',
        'checkpoint.state_dict',
        'checkpoint.content',
    ),
    'runner.default_constructor': 'runner.builder',
    'runner.dist_utils': ('distributed.launch', 'distributed.info', 'distributed.collectives'),
    'runner.fp16_utils': 'nn.amp',
    'runner.hooks': 'hooks',
    'runner.hooks.logger': 'hooks.logger',
    'runner.log_buffer': 'log_buffer',
    'runner.optimizer': 'optim',
    'runner.priority': 'hooks.priority',
    'runner.utils': ('utils.env', 'utils.imports', 'utils.seed'),
    'utils.config': ('config', 'config.action'),
    'utils.device_type': 'compat.device_type',
    'utils.ext_loader': 'compat.ext_loader',
    'utils.hub': 'checkpoint.hub',
    'utils.misc': 'compat.misc',
    'utils.parrots_jit': 'compat.tracing',
    'utils.parrots_wrapper': 'compat.torch_layers',
    'utils.path': 'utils.paths',
    'utils.progressbar': 'utils.progress',
    'utils.registry': 'registry',
    'utils.testing': 'compat.testing',
    'utils.torch_ops': 'compat.torch_layers',
    'utils.trace': 'compat.tracing',
    'utils.version_utils': 'utils.version',
}

#: Aliases below ``mmcv`` only: at this path runnerkit has another module, or none.
MMCV_ALIASES: dict[str, str] = {
    'cnn.utils.weight_init': 'nn.weight_init',
    'version': 'compat.mmcv_version',
}


#: Our own modules that have moved: configs, checkpoints and code written before name them by their former paths.
MOVED: dict[str, str] = {
    'hooks.vega_callbacks': 'compat.vega.callbacks',
    'search.class_factory': 'compat.vega.class_factory',
    'search.datasets': 'compat.vega.datasets',
    'search.metrics': 'compat.vega.metrics',
    'search.model_statistics': 'compat.vega.model_statistics',
    'search.networks': 'compat.vega.networks',
    'search.prune_codec': 'compat.vega.prune',
    'search.prune_ea': 'compat.vega.prune',
    'search.vega': 'compat.vega.names',
    'search.vega_report': 'compat.vega.report',
    'search.vega_space': 'compat.vega.space',
    'search.vega_steps': 'compat.vega.steps',
}


def homes_of(path: str) -> tuple[str, ...]:
    """Return our modules for MMCV's module ``path``, both relative to their package; empty if it is not an alias."""
    head, tail = path, ''
    while head:
        homes = ALIASES.get(head) or MOVED.get(head)
        if homes is not None and (not tail or isinstance(homes, str)):
            return (homes + tail,) if isinstance(homes, str) else homes
        head, _, last = head.rpartition('.')
        tail = f'.{last}{tail}'
    return ()
