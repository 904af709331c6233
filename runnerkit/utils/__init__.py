"""Small helpers. MMCV has more names here: `runnerkit.compat.mmcv.old_names`."""

from typing import TYPE_CHECKING

from runnerkit.utils.lazy import lazy_getattr

if TYPE_CHECKING:
    from runnerkit.utils.env import collect_env, get_host_info, get_time_str
    from runnerkit.utils.imports import import_modules_from_strings, obj_from_dict
    from runnerkit.utils.logging import close_logger, get_logger, print_log
    from runnerkit.utils.paths import is_filepath, mkdir_or_exist, scandir
    from runnerkit.utils.progress import ProgressBar
    from runnerkit.utils.seed import draw_seed, preserved_rng, rng_state, set_random_seed, set_rng_state, worker_init_fn

__all__ = [
    'ProgressBar',
    'close_logger',
    'collect_env',
    'draw_seed',
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
    'worker_init_fn',
]

__getattr__ = lazy_getattr(__name__)
