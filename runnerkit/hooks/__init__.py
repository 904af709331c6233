"""Hooks: one behaviour a file, MMCV's file names."""

from runnerkit.hooks.checkpoint import CheckpointHook
from runnerkit.hooks.closure import ClosureHook
from runnerkit.hooks.ema import EMAHook
from runnerkit.hooks.evaluation import EvalHook
from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.hooks.iter_timer import IterTimerHook
from runnerkit.hooks.logger import LoggerHook, ProgressBarHook, TensorboardLoggerHook, TextLoggerHook
from runnerkit.hooks.lr_updater import (
    CosineAnnealingLrUpdaterHook,
    CosineRestartLrUpdaterHook,
    CyclicLrUpdaterHook,
    ExpLrUpdaterHook,
    FixedLrUpdaterHook,
    FlatCosineAnnealingLrUpdaterHook,
    InvLrUpdaterHook,
    LinearAnnealingLrUpdaterHook,
    LrUpdaterHook,
    OneCycleLrUpdaterHook,
    PolyLrUpdaterHook,
    StepLrUpdaterHook,
)
from runnerkit.hooks.momentum_updater import (
    CosineAnnealingMomentumUpdaterHook,
    CyclicMomentumUpdaterHook,
    LinearAnnealingMomentumUpdaterHook,
    MomentumUpdaterHook,
    OneCycleMomentumUpdaterHook,
    StepMomentumUpdaterHook,
)
from runnerkit.hooks.optimizer import OptimizerHook
from runnerkit.hooks.priority import Priority, get_priority
from runnerkit.hooks.sampler_seed import DistSamplerSeedHook

__all__ = [
    'HOOKS',
    'CheckpointHook',
    'ClosureHook',
    'CosineAnnealingLrUpdaterHook',
    'CosineAnnealingMomentumUpdaterHook',
    'CosineRestartLrUpdaterHook',
    'CyclicLrUpdaterHook',
    'CyclicMomentumUpdaterHook',
    'DistSamplerSeedHook',
    'EMAHook',
    'EvalHook',
    'ExpLrUpdaterHook',
    'FixedLrUpdaterHook',
    'FlatCosineAnnealingLrUpdaterHook',
    'Hook',
    'InvLrUpdaterHook',
    'IterTimerHook',
    'LinearAnnealingLrUpdaterHook',
    'LinearAnnealingMomentumUpdaterHook',
    'LoggerHook',
    'LrUpdaterHook',
    'MomentumUpdaterHook',
    'OneCycleLrUpdaterHook',
    'OneCycleMomentumUpdaterHook',
    'OptimizerHook',
    'PolyLrUpdaterHook',
    'Priority',
    'ProgressBarHook',
    'RunnerView',
    'StepLrUpdaterHook',
    'StepMomentumUpdaterHook',
    'TensorboardLoggerHook',
    'TextLoggerHook',
    'get_priority',
]
