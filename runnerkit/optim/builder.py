"""Optimizers by name: ``optimizer=dict(type='SGD', lr=0.1, paramwise_cfg=dict(...))``."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from runnerkit.registry import Registry, build_from_cfg
from runnerkit.utils.suggest import did_you_mean

#: The names of all optimizers of torch, including their base class, as in MMCV.
TORCH_OPTIMIZERS = sorted(
    name for name, found in vars(torch.optim).items() if isinstance(found, type) and issubclass(found, Optimizer)
)


def _torch_optimizer(name: str) -> type[Optimizer] | None:
    return getattr(torch.optim, name) if name in TORCH_OPTIMIZERS else None


#: Classes of optimizers: those you register, and all of torch's by their names.
OPTIMIZERS = Registry('optimizer', fallback=_torch_optimizer, fallback_names=lambda: TORCH_OPTIMIZERS)

#: Classes of constructors, which make an optimizer's parameter groups from a model.
OPTIMIZER_BUILDERS = Registry('optimizer builder')


def build_optimizer_constructor(cfg: dict[str, Any]) -> Any:
    """Build a constructor: an object that is called with a model and returns an optimizer.

    Args:
        cfg: ``type``, ``optimizer_cfg`` and ``paramwise_cfg``.
    """
    return build_from_cfg(cfg, OPTIMIZER_BUILDERS)


def build_optimizer(model: nn.Module, cfg: dict[str, Any]) -> Any:
    """Build an optimizer over a model's parameters, or several over its parts.

    Args:
        model: The model, or a wrapper around it.
        cfg: ``type`` and arguments of the optimizer, and optionally ``paramwise_cfg`` and ``constructor``, the name of
            a class in OPTIMIZER_BUILDERS. For several optimizers, a dict without ``type`` that has such a dict for the
            name of each submodule to train: ``dict(G=dict(type='Adam', ...), D=dict(type='SGD', ...))``. It is not
            changed.

    Returns:
        The optimizer, or a dict of optimizers.

    Raises:
        TypeError: If ``cfg`` is not a dict.
        KeyError: If there is no ``type``, or no class of that name.
        ValueError: If the model has no submodule with an optimizer's name.
    """
    if not isinstance(cfg, dict):
        raise TypeError(f"the optimizer is given as a dict such as dict(type='SGD', lr=0.1), got {cfg!r}")
    if 'type' not in cfg and cfg and all(isinstance(part, dict) for part in cfg.values()):
        return {name: build_optimizer(_part_of(model, name), part) for name, part in cfg.items()}
    optimizer_cfg = cfg.copy()
    constructor = optimizer_cfg.pop('constructor', 'DefaultOptimizerConstructor')
    paramwise_cfg = optimizer_cfg.pop('paramwise_cfg', None)
    build = build_optimizer_constructor(
        {'type': constructor, 'optimizer_cfg': optimizer_cfg, 'paramwise_cfg': paramwise_cfg}
    )
    return build(model)


def _part_of(model: nn.Module, name: str) -> nn.Module:
    """Return the submodule that the optimizer of that name trains."""
    model = getattr(model, 'module', model)
    part = dict(model.named_modules()).get(name)
    if part is None or not name:
        names = [child for child, _ in model.named_children()]
        hint = did_you_mean(name, names)
        raise ValueError(
            f'there is an optimizer for {name!r}, but {type(model).__name__} has no submodule of that name'
            f'{"; " + hint if hint else "."} Its children: {", ".join(names) or "none"}.'
        )
    return part
