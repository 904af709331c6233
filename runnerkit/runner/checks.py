"""What a runner is built from: the step's one owner, and optimizers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim import Optimizer

from runnerkit.parallel import unwrap
from runnerkit.utils.exceptions import WrongType


def check_step(model: nn.Module, batch_processor: Callable[..., Any] | None) -> None:
    """Whether the step has exactly one owner.

    Raises:
        TypeError: ``batch_processor`` cannot be called, or there is no step.
        RuntimeError: both the model and ``batch_processor`` want to be the step.
    """
    inner = unwrap(model)  # a wrapper has every step as far as hasattr can see
    has_step = hasattr(inner, 'train_step') or hasattr(inner, 'val_step')
    if batch_processor is not None and not callable(batch_processor):
        raise TypeError(f'batch_processor must be callable, but got {type(batch_processor)}')
    if batch_processor is not None:
        warnings.warn(
            'batch_processor is deprecated, please implement train_step() and val_step() in the model instead',
            DeprecationWarning,
            stacklevel=3,
        )
    if batch_processor is not None and has_step:
        raise RuntimeError(
            'batch_processor and model.train_step()/model.val_step() cannot be both available: keep one of them'
        )
    if batch_processor is None and not has_step:
        raise WrongType(
            f'{type(inner).__name__} has no train_step(data, optimizer): write one that returns dict(loss=…, '
            f"log_vars=…, num_samples=…), or wrap the model: model=dict(type='Supervised', model=…, loss=…)"
        )


def check_optimizer(optimizer: Any) -> None:
    """Raise TypeError unless ``optimizer`` is an optimizer, a dict of them, or None."""
    if isinstance(optimizer, dict):
        for name, each in optimizer.items():
            if not isinstance(each, Optimizer):
                raise TypeError(
                    f'optimizer must be a dict of torch.optim.Optimizers, but optimizer["{name}"] is a {type(each)}'
                )
    elif optimizer is not None and not isinstance(optimizer, Optimizer):
        raise TypeError(f'optimizer must be a torch.optim.Optimizer object or dict or None, but got {type(optimizer)}')
