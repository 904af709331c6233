"""Loggers, one backend a file."""

from typing import TYPE_CHECKING

from runnerkit.utils.lazy import lazy_getattr

if TYPE_CHECKING:
    from runnerkit.hooks.logger.base import LoggerHook
    from runnerkit.hooks.logger.clearml import ClearMLLoggerHook
    from runnerkit.hooks.logger.dvclive import DvcliveLoggerHook
    from runnerkit.hooks.logger.history import HistoryHook
    from runnerkit.hooks.logger.mlflow import MlflowLoggerHook
    from runnerkit.hooks.logger.neptune import NeptuneLoggerHook
    from runnerkit.hooks.logger.pavi import PaviLoggerHook
    from runnerkit.hooks.logger.progress import ProgressBarHook
    from runnerkit.hooks.logger.segmind import SegmindLoggerHook
    from runnerkit.hooks.logger.tensorboard import TensorboardLoggerHook
    from runnerkit.hooks.logger.text import TextLoggerHook
    from runnerkit.hooks.logger.wandb import WandbLoggerHook

__all__ = [
    'ClearMLLoggerHook',
    'DvcliveLoggerHook',
    'HistoryHook',
    'LoggerHook',
    'MlflowLoggerHook',
    'NeptuneLoggerHook',
    'PaviLoggerHook',
    'ProgressBarHook',
    'SegmindLoggerHook',
    'TensorboardLoggerHook',
    'TextLoggerHook',
    'WandbLoggerHook',
]

__getattr__ = lazy_getattr(__name__)
