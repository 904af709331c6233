"""Hooks: one behaviour per file, with MMCV's file names."""

from typing import TYPE_CHECKING

from runnerkit.hooks.hook import HOOKS, Hook, Outcome, RunnerView, Score
from runnerkit.utils.lazy import homes_in, lazy_getattr

if TYPE_CHECKING:
    from runnerkit.hooks.basic import ClosureHook, DistSamplerSeedHook, EmptyCacheHook, IterTimerHook, SyncBuffersHook
    from runnerkit.hooks.capture import CaptureHook
    from runnerkit.hooks.checkpoint import CheckpointHook
    from runnerkit.hooks.control import ControlHook
    from runnerkit.hooks.early_stopping import EarlyStoppingHook
    from runnerkit.hooks.ema import EMAHook
    from runnerkit.hooks.evaluation import DistEvalHook, EvalHook
    from runnerkit.hooks.fingerprint import FingerprintHook
    from runnerkit.hooks.freeze import FreezeHook
    from runnerkit.hooks.hook import Priority, get_priority
    from runnerkit.hooks.logger import *  # noqa: F403
    from runnerkit.hooks.loss_jump import LossJumpHook
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
        annealing_cos,
        annealing_linear,
        format_param,
        get_position_from_periods,
    )
    from runnerkit.hooks.momentum_updater import (
        CosineAnnealingMomentumUpdaterHook,
        CyclicMomentumUpdaterHook,
        LinearAnnealingMomentumUpdaterHook,
        MomentumUpdaterHook,
        OneCycleMomentumUpdaterHook,
        StepMomentumUpdaterHook,
    )
    from runnerkit.hooks.nested_run import NestedRunHook
    from runnerkit.hooks.non_finite import NonFiniteError, NonFiniteHook
    from runnerkit.hooks.optimizer import (
        Fp16OptimizerHook,
        GradientCumulativeFp16OptimizerHook,
        GradientCumulativeOptimizerHook,
        OptimizerHook,
    )
    from runnerkit.hooks.profiler import ProfilerHook
    from runnerkit.hooks.registration import build_lr_hook, build_momentum_hook
    from runnerkit.hooks.report import ReportHook
    from runnerkit.hooks.step_record import StepRecord
    from runnerkit.hooks.stop_after import StopAfterHook
    from runnerkit.hooks.torch_scheduler import TorchLrUpdaterHook

__all__ = [
    'HOOKS',
    'CaptureHook',
    'CheckpointHook',
    'ClearMLLoggerHook',
    'ClosureHook',
    'ControlHook',
    'CosineAnnealingLrUpdaterHook',
    'CosineAnnealingMomentumUpdaterHook',
    'CosineRestartLrUpdaterHook',
    'CyclicLrUpdaterHook',
    'CyclicMomentumUpdaterHook',
    'DistEvalHook',
    'DistSamplerSeedHook',
    'DvcliveLoggerHook',
    'EMAHook',
    'EarlyStoppingHook',
    'EmptyCacheHook',
    'EvalHook',
    'ExpLrUpdaterHook',
    'FingerprintHook',
    'FixedLrUpdaterHook',
    'FlatCosineAnnealingLrUpdaterHook',
    'Fp16OptimizerHook',
    'FreezeHook',
    'GradientCumulativeFp16OptimizerHook',
    'GradientCumulativeOptimizerHook',
    'HistoryHook',
    'Hook',
    'InvLrUpdaterHook',
    'IterTimerHook',
    'LinearAnnealingLrUpdaterHook',
    'LinearAnnealingMomentumUpdaterHook',
    'LoggerHook',
    'LossJumpHook',
    'LrUpdaterHook',
    'MlflowLoggerHook',
    'MomentumUpdaterHook',
    'NeptuneLoggerHook',
    'NestedRunHook',
    'NonFiniteError',
    'NonFiniteHook',
    'OneCycleLrUpdaterHook',
    'OneCycleMomentumUpdaterHook',
    'OptimizerHook',
    'Outcome',
    'PaviLoggerHook',
    'PolyLrUpdaterHook',
    'Priority',
    'ProfilerHook',
    'ProgressBarHook',
    'ReportHook',
    'RunnerView',
    'Score',
    'SegmindLoggerHook',
    'StepLrUpdaterHook',
    'StepMomentumUpdaterHook',
    'StepRecord',
    'StopAfterHook',
    'SyncBuffersHook',
    'TensorboardLoggerHook',
    'TextLoggerHook',
    'TorchLrUpdaterHook',
    'WandbLoggerHook',
    'annealing_cos',
    'annealing_linear',
    'build_lr_hook',
    'build_momentum_hook',
    'format_param',
    'get_position_from_periods',
    'get_priority',
]

__getattr__ = lazy_getattr(__name__)

#: Bases, and hooks that no config names.
_UNREGISTERED = ('FingerprintHook', 'LoggerHook', 'LrUpdaterHook', 'MomentumUpdaterHook', 'NestedRunHook', 'ReportHook')

HOOKS.offer(
    {name: home for name, home in homes_in(__name__).items() if name.endswith('Hook') and name not in _UNREGISTERED}
)
