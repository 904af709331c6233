"""Small helpers. MMCV has more names here: `runnerkit.compat.mmcv.old_names`."""

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
