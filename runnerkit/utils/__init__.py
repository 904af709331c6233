"""Small helpers, and MMCV's names for things that live in higher layers."""

from importlib import import_module
from typing import Any

from runnerkit.utils.env import collect_env, get_host_info, get_time_str
from runnerkit.utils.imports import import_modules_from_strings, obj_from_dict
from runnerkit.utils.logging import close_logger, get_logger, print_log
from runnerkit.utils.paths import check_file_exist, find_vcs_root, fopen, is_filepath, mkdir_or_exist, scandir, symlink
from runnerkit.utils.progress import ProgressBar, track_iter_progress, track_parallel_progress, track_progress
from runnerkit.utils.seed import draw_seed, preserved_rng, rng_state, set_random_seed, set_rng_state, worker_init_fn
from runnerkit.utils.timer import Timer, TimerError, check_time
from runnerkit.utils.version import digit_version, get_git_hash

__all__ = [
    'ProgressBar',
    'Timer',
    'TimerError',
    'check_file_exist',
    'check_time',
    'close_logger',
    'collect_env',
    'digit_version',
    'draw_seed',
    'find_vcs_root',
    'fopen',
    'get_git_hash',
    'get_host_info',
    'get_logger',
    'get_time_str',
    'import_modules_from_strings',
    'is_filepath',
    'mkdir_or_exist',
    'obj_from_dict',
    'preserved_rng',
    'print_log',
    'rng_state',
    'scandir',
    'set_random_seed',
    'set_rng_state',
    'symlink',
    'track_iter_progress',
    'track_parallel_progress',
    'track_progress',
    'worker_init_fn',
]

#: Names that MMCV has in ``utils`` and we have elsewhere. They are imported by name at their first use, so that this
#: layer does not import from higher ones.
_HOMES = {
    'runnerkit.config': ('Config', 'ConfigDict', 'DictAction'),
    'runnerkit.registry': ('Registry', 'build_from_cfg'),
    'runnerkit.checkpoint.hub': ('load_url',),
    'runnerkit.compat.misc': (
        'check_prerequisites',
        'concat_list',
        'deprecated_api_warning',
        'has_method',
        'is_list_of',
        'is_method_overridden',
        'is_seq_of',
        'is_str',
        'is_tuple_of',
        'iter_cast',
        'list_cast',
        'requires_executable',
        'requires_package',
        'slice_list',
        'to_1tuple',
        'to_2tuple',
        'to_3tuple',
        'to_4tuple',
        'to_ntuple',
        'tuple_cast',
    ),
    'runnerkit.compat.testing': (
        'assert_attrs_equal',
        'assert_dict_contains_subset',
        'assert_dict_has_keys',
        'assert_is_norm_layer',
        'assert_keys_equal',
        'assert_params_all_zeros',
        'check_python_script',
    ),
    'runnerkit.compat.tracing': (
        'is_jit_tracing',
        'jit',
        'skip_no_elena',
    ),
    'runnerkit.compat.device_type': (
        'IS_CUDA_AVAILABLE',
        'IS_IPU_AVAILABLE',
        'IS_MLU_AVAILABLE',
        'IS_MPS_AVAILABLE',
        'IS_NPU_AVAILABLE',
    ),
    'runnerkit.compat.torch_layers': (
        'BuildExtension',
        'CUDAExtension',
        'CppExtension',
        'DataLoader',
        'PoolDataLoader',
        'SyncBatchNorm',
        'TORCH_VERSION',
        '_AdaptiveAvgPoolNd',
        '_AdaptiveMaxPoolNd',
        '_AvgPoolNd',
        '_BatchNorm',
        '_ConvNd',
        '_ConvTransposeMixin',
        '_InstanceNorm',
        '_MaxPoolNd',
        '_get_cuda_home',
        'get_build_config',
        'is_rocm_pytorch',
        'torch_meshgrid',
    ),
}
_ELSEWHERE = {name: module for module, names in _HOMES.items() for name in names}
__all__ += [*_ELSEWHERE]


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
