"""Small helpers, and MMCV's names for things that live in higher layers."""

from importlib import import_module
from typing import Any

from runnerkit.utils.env import collect_env
from runnerkit.utils.imports import import_modules_from_strings
from runnerkit.utils.logging import close_logger, get_logger, print_log
from runnerkit.utils.paths import check_file_exist, find_vcs_root, fopen, is_filepath, mkdir_or_exist, scandir, symlink
from runnerkit.utils.seed import draw_seed, preserved_rng, rng_state, set_random_seed, set_rng_state
from runnerkit.utils.timer import Timer, TimerError, check_time

__all__ = [
    'Timer',
    'TimerError',
    'check_file_exist',
    'check_time',
    'close_logger',
    'collect_env',
    'draw_seed',
    'find_vcs_root',
    'fopen',
    'get_logger',
    'import_modules_from_strings',
    'is_filepath',
    'mkdir_or_exist',
    'preserved_rng',
    'print_log',
    'rng_state',
    'scandir',
    'set_random_seed',
    'set_rng_state',
    'symlink',
]

#: Where else MMCV has names of its ``utils``: by name, so that this layer imports nothing from those above it.
_ELSEWHERE = {
    'Config': 'runnerkit.config',
    'ConfigDict': 'runnerkit.config',
    'DictAction': 'runnerkit.config',
    'Registry': 'runnerkit.registry',
    'build_from_cfg': 'runnerkit.registry',
}


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
