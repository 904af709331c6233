"""Hooks: one behaviour a file, MMCV's file names."""

from runnerkit.hooks.checkpoint import CheckpointHook
from runnerkit.hooks.closure import ClosureHook
from runnerkit.hooks.ema import EMAHook
from runnerkit.hooks.evaluation import EvalHook
from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.hooks.iter_timer import IterTimerHook
from runnerkit.hooks.logger import LoggerHook, ProgressBarHook, TensorboardLoggerHook, TextLoggerHook
from runnerkit.hooks.lr_updater import *  # noqa: F403
from runnerkit.hooks.momentum_updater import *  # noqa: F403
from runnerkit.hooks.optimizer import OptimizerHook
from runnerkit.hooks.priority import Priority, get_priority
from runnerkit.hooks.sampler_seed import DistSamplerSeedHook
