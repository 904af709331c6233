"""Optimizers by name, parameter groups, schedules, and the update of weights."""

from runnerkit.optim.builder import (
    OPTIMIZER_BUILDERS,
    OPTIMIZERS,
    TORCH_OPTIMIZERS,
    build_optimizer,
    build_optimizer_constructor,
)
from runnerkit.optim.default_constructor import DefaultOptimizerConstructor

__all__ = [
    'OPTIMIZERS',
    'OPTIMIZER_BUILDERS',
    'TORCH_OPTIMIZERS',
    'DefaultOptimizerConstructor',
    'build_optimizer',
    'build_optimizer_constructor',
]
