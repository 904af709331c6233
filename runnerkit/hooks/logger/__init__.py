"""Loggers: text, TensorBoard, the progress bar, records in memory, and experiment trackers."""

from typing import TYPE_CHECKING

from runnerkit.utils.lazy import lazy_getattr

if TYPE_CHECKING:
    from runnerkit.hooks.logger.base import LoggerHook
    from runnerkit.hooks.logger.history import HistoryHook
    from runnerkit.hooks.logger.progress import ProgressBarHook
    from runnerkit.hooks.logger.tensorboard import TensorboardLoggerHook
    from runnerkit.hooks.logger.text import TextLoggerHook
    from runnerkit.hooks.logger.trackers import (
        ClearMLLoggerHook,
        DvcliveLoggerHook,
        MlflowLoggerHook,
        NeptuneLoggerHook,
        PaviLoggerHook,
        SegmindLoggerHook,
        WandbLoggerHook,
    )

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
