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
    'utils.version': 'compat.mmcv.version_utils',
}
