"""Modules of runnerkit that have moved, so that imports, pickles and configs with their old paths still work."""

from __future__ import annotations

_MMCV = (
    'aliases',
    'config_files',
    'device',
    'device_type',
    'ext_loader',
    'finder',
    'helpers',
    'loss_scaler',
    'misc',
    'mmcv_finder',
    'mmcv_version',
    'old_names',
    'root_names',
    'testing',
    'torch_layers',
    'tracing',
)

#: The new path of each old one, both below the package; everything below a package moves along.
MOVED: dict[str, str] = {
    **{f'compat.{name}': f'compat.mmcv.{name}' for name in _MMCV},
    'config.paddlerec': 'compat.paddlerec.config',
    'config.vega': 'compat.vega.config',
    'fileio.clusters': 'compat.mmcv.clusters',
    'flow.experiment_main': 'flow.experiment.main',
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
    'utils.version': 'compat.mmcv.version_utils',
}
