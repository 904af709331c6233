"""The real loop, and MMCV's whole ``mmcv.runner`` surface."""

from runnerkit.runner.base_runner import BaseRunner
from runnerkit.runner.builder import RUNNER_BUILDERS, RUNNERS, DefaultRunnerConstructor, build_runner
from runnerkit.runner.epoch_based_runner import EpochBasedRunner
from runnerkit.runner.hook_table import HookTable
from runnerkit.runner.iter_based_runner import IterBasedRunner, IterLoader
from runnerkit.runner.log_buffer import LogBuffer
