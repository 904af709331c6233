"""Names that code written for MMCV 1.x takes from a module, and that lie elsewhere here.

Found by searching public code for imports from MMCV's modules and for uses of their private names. What
`runnerkit.utils` hands on is in its own table.
"""

from __future__ import annotations

#: For each of our modules: the location of each name, as ``module:name`` or ``module``. A leading dot stands for the
#: package. The same objects are returned, at the first access.
OLD_NAMES: dict[str, dict[str, str]] = {
    'hooks.optimizer': {
        'GradScaler': 'torch.amp:GradScaler',
        'LossScaler': '.compat.loss_scaler:LossScaler',
        '_BatchNorm': 'torch.nn.modules.batchnorm:_BatchNorm',
        'allreduce_grads': '.distributed.collectives:allreduce_grads',
        'logging': 'logging',
    },
    'nn': {'LossScaler': '.compat.loss_scaler:LossScaler'},
    'nn.amp': {'LossScaler': '.compat.loss_scaler:LossScaler'},
    'nn.weight_init': {'_get_bases_name': '.compat.helpers:get_bases_name'},
    'optim.builder': {'register_torch_optimizers': '.compat.helpers:register_torch_optimizers'},
    'parallel._functions': {'_get_stream': 'torch.nn.parallel._functions:_get_stream'},
    'parallel.data_parallel': {'scatter_kwargs': '.parallel.scatter_gather:scatter_kwargs'},
    'runner': {'LossScaler': '.compat.loss_scaler:LossScaler'},
    'runner.epoch_based_runner': {
        'get_host_info': '.utils.env:get_host_info',
        'save_checkpoint': '.checkpoint:save_checkpoint',
        'time': 'time',
    },
    'runner.iter_based_runner': {
        'get_host_info': '.utils.env:get_host_info',
        'save_checkpoint': '.checkpoint:save_checkpoint',
    },
    'utils.progress': {'init_pool': '.utils.progress:start_pool'},
}

#: For each class, as ``module:Class``: functions that code written for MMCV calls as its static methods.
OLD_METHODS: dict[str, dict[str, str]] = {
    'config.action:DictAction': {
        '_parse_int_float_bool': '.config.action:parse_scalar',
        '_parse_iterable': '.config.action:parse_value',
    },
    'config.config:Config': {
        '_file2dict': '.config.parse:read_config',
        '_merge_a_into_b': '.config.merge:merge',
        '_pre_substitute_base_vars': '.compat.config_files:pre_substitute_base_vars',
        '_substitute_base_vars': '.compat.config_files:substitute_base_vars',
        '_substitute_predefined_vars': '.compat.config_files:substitute_predefined_vars',
        '_validate_py_syntax': '.compat.config_files:validate_py_syntax',
    },
}

#: Modules that have more names, or whose classes have.
MODULES = {*OLD_NAMES, *(name.partition(':')[0] for name in OLD_METHODS)}
