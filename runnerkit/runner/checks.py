"""What a runner is built from: the step's one owner, optimizers, settings."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from runnerkit.fileio.paths import is_url, local_path
from runnerkit.optim.builder import check_numbers
from runnerkit.optim.named import named_optimizers
from runnerkit.parallel import unwrap
from runnerkit.utils.exceptions import WrongType
from runnerkit.utils.numbers import check_whole_number

#: Steps of every model, and of models for Lightning and MMEngine.
_OTHER_STEPS = ('train_step', 'val_step', 'training_step', 'validation_step', 'test_step', 'predict_step')


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
    if batch_processor is None and not (has_step or steps_of_modes(inner)):
        raise WrongType(
            f'{type(inner).__name__} has no train_step(data, optimizer): write one that returns dict(loss=…, '
            f"log_vars=…, num_samples=…), or wrap the model: model=dict(type='Supervised', model=…, "
            "loss=dict(type='CrossEntropyLoss'))"
        )


def steps_of_modes(model: nn.Module) -> list[str]:
    """The names of the steps of ``model`` for workflow modes of its own, as ``dis_step`` for ``('dis', 5)``."""
    return [name for name in dir(model) if name.endswith('_step') and name not in _OTHER_STEPS]


def check_optimizer(optimizer: Any) -> None:
    """Raise TypeError unless ``optimizer`` is an optimizer, a dict of them, or None; ValueError if a setting of one is
    not a finite number."""
    if isinstance(optimizer, dict):
        for name, each in optimizer.items():
            if not isinstance(each, Optimizer):
                raise TypeError(
                    f'optimizer must be a dict of torch.optim.Optimizers, but optimizer["{name}"] is a {type(each)}'
                )
    elif optimizer is not None and not isinstance(optimizer, Optimizer):
        raise TypeError(f'optimizer must be a torch.optim.Optimizer object or dict or None, but got {type(optimizer)}')
    for each in named_optimizers(optimizer).values():
        check_numbers(each)


def check_settings(logger: Any, meta: Any, work_dir: Any, max_epochs: Any, max_iters: Any) -> None:
    """Raise TypeError or ValueError unless these are arguments of `BaseRunner`."""
    if logger is not None and not isinstance(logger, logging.Logger):
        raise TypeError(f'logger must be a logging.Logger object, but got {type(logger)}')
    if meta is not None and not isinstance(meta, Mapping):
        raise TypeError(f'meta must be a dict or None, but got {type(meta)}')
    if work_dir is not None and not isinstance(work_dir, (str, os.PathLike)):
        raise TypeError(f'"work_dir" must be a str, a path or None, but got {type(work_dir)}')
    for name, limit in (('max_epochs', max_epochs), ('max_iters', max_iters)):
        check_whole_number(name, limit, at_least=0, or_none=True)
    if max_epochs is not None and max_iters is not None:
        raise ValueError(f'Only one of `max_epochs` or `max_iters` can be set, but got {max_epochs} and {max_iters}')


def absolute_work_dir(work_dir: str | os.PathLike[str]) -> str:
    """``work_dir`` as an absolute path.

    Raises:
        ValueError: it is a URL of another machine.
    """
    path = local_path(work_dir)
    if is_url(path):
        raise ValueError(
            f"a runner's work_dir is a folder on this machine, but got {path!r}: give one for the logs, and the URL to "
            f'the hooks that write there, checkpoint_config=dict(out_dir={path!r}, ...); the train tool does that'
        )
    return os.path.abspath(path)
