"""The real loop; and MMCV's ``mmcv.runner`` surface, whose other names are handed on from their own homes."""

from typing import TYPE_CHECKING

from runnerkit.hooks import __all__ as _hooks
from runnerkit.utils.lazy import lazy_getattr

if TYPE_CHECKING:
    from runnerkit.checkpoint import (
        CheckpointLoader,
        _load_checkpoint,
        _load_checkpoint_with_prefix,
        load_checkpoint,
        load_state_dict,
        save_checkpoint,
        weights_to_cpu,
    )
    from runnerkit.data.reader import IterLoader
    from runnerkit.distributed import allreduce_grads, allreduce_params, get_dist_info, init_dist, master_only
    from runnerkit.hooks import *  # noqa: F403
    from runnerkit.hooks.hook_table import HookTable
    from runnerkit.log_buffer import LogBuffer
    from runnerkit.nn import BaseModule, ModuleDict, ModuleList, Sequential
    from runnerkit.nn.amp import auto_fp16, force_fp32, wrap_fp16_model
    from runnerkit.optim import (
        OPTIMIZER_BUILDERS,
        OPTIMIZERS,
        DefaultOptimizerConstructor,
        build_optimizer,
        build_optimizer_constructor,
    )
    from runnerkit.runner.base_runner import BaseRunner
    from runnerkit.runner.builder import RUNNER_BUILDERS, RUNNERS, DefaultRunnerConstructor, build_runner
    from runnerkit.runner.epoch_based_runner import EpochBasedRunner, Runner
    from runnerkit.runner.iter_based_runner import IterBasedRunner
    from runnerkit.utils.env import get_host_info, get_time_str
    from runnerkit.utils.imports import obj_from_dict
    from runnerkit.utils.seed import set_random_seed

__all__ = [
    'OPTIMIZERS',
    'OPTIMIZER_BUILDERS',
    'RUNNERS',
    'RUNNER_BUILDERS',
    'BaseModule',
    'BaseRunner',
    'CheckpointLoader',
    'DefaultOptimizerConstructor',
    'DefaultRunnerConstructor',
    'EpochBasedRunner',
    'HookTable',
    'IterBasedRunner',
    'IterLoader',
    'LogBuffer',
    'ModuleDict',
    'ModuleList',
    'Runner',
    'Sequential',
    '_load_checkpoint',
    '_load_checkpoint_with_prefix',
    'allreduce_grads',
    'allreduce_params',
    'auto_fp16',
    'build_optimizer',
    'build_optimizer_constructor',
    'build_runner',
    'force_fp32',
    'get_dist_info',
    'get_host_info',
    'get_time_str',
    'init_dist',
    'load_checkpoint',
    'load_state_dict',
    'master_only',
    'obj_from_dict',
    'save_checkpoint',
    'set_random_seed',
    'weights_to_cpu',
    'wrap_fp16_model',
    *_hooks,
]


__getattr__ = lazy_getattr(__name__)
