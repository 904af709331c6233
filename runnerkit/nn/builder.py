"""Models, losses and metrics by name; the classes of torch.nn and torchmetrics need no registration."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from runnerkit.registry import Registry, build_from_cfg
from runnerkit.utils.lazy import loaded_late

#: Arguments of torch's losses that must be tensors, while a config holds lists of numbers.
TENSOR_ARGUMENTS = ('weight', 'pos_weight')


def build_model_from_cfg(cfg: Any, registry: Registry, default_args: dict[str, Any] | None = None) -> Any:
    """Build a module; from a list of configs, an `nn.Sequential` of them."""
    if isinstance(cfg, list | tuple):
        return nn.Sequential(*(build_from_cfg(layer, registry, default_args) for layer in cfg))
    return build_from_cfg(cfg, registry, default_args)


def build_loss_from_cfg(cfg: Any, registry: Registry, default_args: dict[str, Any] | None = None) -> Any:
    """Build a loss; class weights may be lists of numbers."""
    if isinstance(cfg, dict):
        cfg = copy.copy(cfg)
        for name in TENSOR_ARGUMENTS:
            if isinstance(cfg.get(name), list | tuple):
                cfg[name] = torch.tensor(cfg[name], dtype=torch.get_default_dtype())
    return build_from_cfg(cfg, registry, default_args)


def _torch_module(name: str) -> type[nn.Module] | None:
    found = getattr(nn, name, None)
    return found if inspect.isclass(found) and issubclass(found, nn.Module) else None


def _torch_loss(name: str) -> type[nn.Module] | None:
    return _torch_module(name) if name.endswith('Loss') else None


def _metrics() -> Iterator[dict[str, Any]]:
    """The metrics of torchmetrics, and then those of each subpackage, because its root does not have all."""
    # Its import loads scipy.signal, which takes a second, to add a name there that gammatone alone needs.
    is_as_ever = 'torchmetrics' in sys.modules or importlib.util.find_spec('gammatone')
    try:
        with nullcontext() if is_as_ever else loaded_late('scipy.signal', hamming=None):
            torchmetrics = importlib.import_module('torchmetrics')
    except ImportError as error:
        raise ImportError("metrics by name come from torchmetrics: pip install 'torchmetrics>=1.2'") from error
    parts = [info.name for info in pkgutil.iter_modules(torchmetrics.__path__) if info.ispkg]
    for part in ('', *(f'.{name}' for name in parts if name not in ('functional', 'utilities'))):
        held = vars(importlib.import_module(f'torchmetrics{part}'))
        yield {
            name: found
            for name, found in held.items()
            if inspect.isclass(found) and issubclass(found, torchmetrics.Metric)
        }


MODELS = Registry(
    'model',
    build_func=build_model_from_cfg,
    fallback=_torch_module,
    fallback_names=lambda: list(filter(_torch_module, dir(nn))),
)
MODELS.offer({'Supervised': 'runnerkit.nn.supervised'})
LOSSES = Registry(
    'loss',
    build_func=build_loss_from_cfg,
    fallback=_torch_loss,
    fallback_names=lambda: list(filter(_torch_loss, dir(nn))),
)
METRICS = Registry(
    'metric',
    fallback=lambda name: next((found[name] for found in _metrics() if name in found), None),
    fallback_names=lambda: sorted(set().union(*_metrics())),
)


def build_model(cfg: Any, default_args: dict[str, Any] | None = None) -> nn.Module:
    """Build a module from ``cfg``, a dict with a ``type``; a list of such dicts becomes an `nn.Sequential`.

    A module is returned as it is.

    Args:
        cfg: ``type`` is a name in `MODELS`, a class of torch.nn, a dotted path or ``file.py:Class``.
        default_args: defaults for arguments that ``cfg`` does not have.

    Raises:
        KeyError: the name is unknown.
        TypeError: the type is not a `torch.nn.Module`.
    """
    model = cfg if isinstance(cfg, nn.Module) else MODELS.build(cfg, default_args=default_args)
    if not isinstance(model, nn.Module):
        raise TypeError(f'the model config {cfg!r} gives a {type(model).__name__}, but a torch.nn.Module is needed')
    return model
