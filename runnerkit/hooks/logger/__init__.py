"""Loggers, one backend a file."""

from runnerkit.hooks.logger.base import LoggerHook
from runnerkit.hooks.logger.progress import ProgressBarHook
from runnerkit.hooks.logger.tensorboard import TensorboardLoggerHook
from runnerkit.hooks.logger.text import TextLoggerHook

__all__ = ['LoggerHook', 'ProgressBarHook', 'TensorboardLoggerHook', 'TextLoggerHook']
