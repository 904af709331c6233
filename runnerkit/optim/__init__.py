"""Optimizers by name, parameter groups, schedules, and the update of weights."""

from typing import TYPE_CHECKING

from runnerkit.utils.lazy import lazy_getattr

if TYPE_CHECKING:
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

__getattr__ = lazy_getattr(__name__)
