"""Hooks: one behaviour per file, with MMCV's file names."""

from runnerkit.hooks import logger, lr_updater, momentum_updater
from runnerkit.hooks.capture import CaptureHook
from runnerkit.hooks.checkpoint import CheckpointHook
from runnerkit.hooks.closure import ClosureHook
from runnerkit.hooks.control import ControlHook
from runnerkit.hooks.early_stopping import EarlyStoppingHook
from runnerkit.hooks.ema import EMAHook
from runnerkit.hooks.evaluation import DistEvalHook, EvalHook
from runnerkit.hooks.fingerprint import FingerprintHook
from runnerkit.hooks.freeze import FreezeHook
from runnerkit.hooks.hook import HOOKS, Hook, Outcome, RunnerView, Score
from runnerkit.hooks.iter_timer import IterTimerHook
from runnerkit.hooks.logger import *  # noqa: F403
from runnerkit.hooks.loss_jump import LossJumpHook
from runnerkit.hooks.lr_updater import *  # noqa: F403
from runnerkit.hooks.memory import EmptyCacheHook
from runnerkit.hooks.momentum_updater import *  # noqa: F403
from runnerkit.hooks.nested_run import NestedRunHook
from runnerkit.hooks.non_finite import NonFiniteError, NonFiniteHook
from runnerkit.hooks.optimizer import (
    Fp16OptimizerHook,
    GradientCumulativeFp16OptimizerHook,
    GradientCumulativeOptimizerHook,
    OptimizerHook,
)
from runnerkit.hooks.priority import Priority, get_priority
from runnerkit.hooks.profiler import ProfilerHook
from runnerkit.hooks.report import ReportHook
from runnerkit.hooks.sampler_seed import DistSamplerSeedHook
from runnerkit.hooks.step_record import StepRecord
from runnerkit.hooks.stop_after import StopAfterHook
from runnerkit.hooks.sync_buffer import SyncBuffersHook

__all__ = [
    'HOOKS',
    'CaptureHook',
    'CheckpointHook',
    'ClosureHook',
    'ControlHook',
    'DistEvalHook',
    'DistSamplerSeedHook',
    'EMAHook',
    'EarlyStoppingHook',
    'EmptyCacheHook',
    'EvalHook',
    'FingerprintHook',
    'Fp16OptimizerHook',
    'FreezeHook',
    'GradientCumulativeFp16OptimizerHook',
    'GradientCumulativeOptimizerHook',
    'Hook',
    'IterTimerHook',
    'LossJumpHook',
    'NestedRunHook',
    'NonFiniteError',
    'NonFiniteHook',
    'OptimizerHook',
    'Outcome',
    'Priority',
    'ProfilerHook',
    'ReportHook',
    'RunnerView',
    'Score',
    'StepRecord',
    'StopAfterHook',
    'SyncBuffersHook',
    'get_priority',
]
__all__ += logger.__all__
__all__ += lr_updater.__all__
__all__ += momentum_updater.__all__
