"""Optimizers by name, fused where possible: ``optimizer=dict(type='SGD', lr=0.1, paramwise_cfg=dict(...))``."""

from __future__ import annotations

import copy
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import SGD, Optimizer

from runnerkit.optim.named import has_scheduler, named_optimizers
from runnerkit.parallel.wrappers import foreign_parameters, held_by_optimizer, named_parameters, submodule
from runnerkit.registry import Registry, build_from_cfg
from runnerkit.utils.logging import NOT_EXACT
from runnerkit.utils.numbers import check_finite

#: The names of all optimizers of torch, including their base class, as in MMCV.
TORCH_OPTIMIZERS = sorted(
    name for name, found in vars(torch.optim).items() if isinstance(found, type) and issubclass(found, Optimizer)
)


#: Classes of optimizers: those you register, and all of torch's by their names.
OPTIMIZERS = Registry(
    'optimizer',
    fallback=lambda name: getattr(torch.optim, name) if name in TORCH_OPTIMIZERS else None,
    fallback_names=lambda: TORCH_OPTIMIZERS,
)

#: Classes of constructors, which make an optimizer's parameter groups from a model.
OPTIMIZER_BUILDERS = Registry('optimizer builder')
OPTIMIZER_BUILDERS.offer({'DefaultOptimizerConstructor': 'runnerkit.optim.default_constructor'})

#: The methods of optimizers that torch's compiler leaves out. To say so, torch imports it at their first call.
_NOT_COMPILED = ('add_param_group', 'load_state_dict', 'state_dict', 'zero_grad')


def leave_compiler_unloaded() -> None:
    """Let optimizers of torch not import its compiler (a second, and 100 MiB), unless something else does.

    Until then nothing is compiled, so that nothing has to be left out.
    """
    for name in _NOT_COMPILED:
        wrapper = getattr(Optimizer, name)
        method = getattr(wrapper, '__wrapped__', None)
        if method is not None:
            vars(method).setdefault('__dynamo_disable', _while_unloaded(wrapper, method))  # where torch looks first


def _while_unloaded(wrapper: Callable[..., Any], method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if 'torch._dynamo' not in sys.modules:
            return method(*args, **kwargs)
        vars(method).pop('__dynamo_disable', None)  # from now on torch decides
        return wrapper(*args, **kwargs)

    return call


def build_optimizer_constructor(cfg: dict[str, Any]) -> Any:
    """Build a constructor: an object that is called with a model and returns an optimizer.

    Args:
        cfg: ``type``, ``optimizer_cfg`` and ``paramwise_cfg``.
    """
    return build_from_cfg(cfg, OPTIMIZER_BUILDERS)


def build_optimizer(model: nn.Module, cfg: Any) -> Any:
    """Build an optimizer over a model's parameters, or several over its parts.

    Args:
        model: The model, or a wrapper around it.
        cfg: ``type`` and arguments of the optimizer, and optionally ``paramwise_cfg``, ``params`` (patterns of the
            names of the parameters that it gets) and ``constructor``, the name of a class in OPTIMIZER_BUILDERS. For
            several optimizers, a dict without ``type`` that has such a dict for the name of each submodule to train:
            ``dict(G=dict(type='Adam', ...), D=dict(type='SGD', ...))``. The name is free for an optimizer with
            ``params``, which are names in the whole model. It is not changed. A name alone is an optimizer with its
            defaults; an optimizer over the model's parameters is returned, with its state where they are.

    Returns:
        The optimizer, or a dict of optimizers.

    Raises:
        TypeError: If ``cfg`` is nothing of these.
        KeyError: If there is no ``type``, or no class of that name.
        ValueError: If the model has no submodule with an optimizer's name, a pattern matches nothing, or two
            optimizers would get the same parameter.
    """
    if isinstance(cfg, Optimizer):
        return _given(model, cfg)
    if isinstance(cfg, str):
        cfg = {'type': cfg}
    if not isinstance(cfg, dict):
        raise TypeError(
            f"the optimizer is given as a dict such as dict(type='SGD', lr=0.1), as a name, or as an object over the "
            f"model's parameters, got {cfg!r}"
        )
    if 'type' not in cfg and cfg and all(isinstance(part, dict | Optimizer) for part in cfg.values()):
        optimizers = {
            name: build_optimizer(
                model
                if isinstance(part, Optimizer) or part.get('params') is not None
                else submodule(getattr(model, 'module', model), name, f'there is an optimizer for {name!r}, but '),
                part,
            )
            for name, part in cfg.items()
        }
        check_disjoint(optimizers, model)
        return optimizers
    optimizer_cfg = cfg.copy()
    constructor = optimizer_cfg.pop('constructor', 'DefaultOptimizerConstructor')
    paramwise_cfg = optimizer_cfg.pop('paramwise_cfg', None)
    params = optimizer_cfg.pop('params', None)
    config = {'type': constructor, 'optimizer_cfg': optimizer_cfg, 'paramwise_cfg': paramwise_cfg}
    if params is not None:
        config['params'] = params
    leave_compiler_unloaded()
    optimizer = build_optimizer_constructor(config)(model)
    if isinstance(optimizer, Optimizer):
        check_numbers(optimizer)
        drop_missing_fused([optimizer])
    return optimizer


def _given(model: nn.Module, optimizer: Optimizer) -> Optimizer:
    """``optimizer``, which the user has built, with its state on the devices of its parameters."""
    foreign = len(foreign_parameters(optimizer, model))
    kind, logger = type(optimizer).__name__, logging.getLogger('runnerkit')
    if 0 < foreign < len(held_by_optimizer(optimizer)):
        text = 'A resume of this run may not be exact: %s also holds %d parameters that the model does not have'
        logger.warning(text, kind, foreign, extra=NOT_EXACT)
    if has_scheduler(optimizer):
        logger.warning(
            "a scheduler of torch is attached to %s, and is not called: give lr_config=dict(policy='step', "
            'step=[8, 11]), or another policy',
            kind,
        )
    is_elsewhere = any(
        isinstance(value, torch.Tensor) and value.dim() and value.device != parameter.device
        for parameter, state in optimizer.state.items()
        for value in state.values()
    )
    if is_elsewhere:
        optimizer.load_state_dict(optimizer.state_dict())  # which moves it
    return optimizer


@contextmanager
def kept_settings(given: Any) -> Iterator[None]:
    """Afterwards, optimizers that the user has built have the settings again, such as the rate, that they have now."""
    optimizers = [each for each in named_optimizers(given).values() if isinstance(each, Optimizer)]
    before = [
        copy.deepcopy([{key: group[key] for key in group if key != 'params'} for group in each.param_groups])
        for each in optimizers
    ]
    try:
        yield
    finally:
        for optimizer, groups in zip(optimizers, before, strict=True):
            for group, settings in zip(optimizer.param_groups, groups, strict=True):
                parameters = group['params']
                group.clear()
                group.update(params=parameters, **settings)


def check_numbers(optimizer: Optimizer) -> None:
    """Whether the settings of all parameter groups are finite numbers."""

    def may_be_infinite(path: tuple[Any, ...]) -> bool:
        from runnerkit.config.values import KINDS  # it takes 40 ms, and only infinite numbers need it

        return f'optimizer.{path[0]}' not in KINDS

    for group in optimizer.param_groups:
        settings = {
            key: value.item() if isinstance(value, torch.Tensor) and value.device.type == 'cpu' else value
            for key, value in group.items()
            if key != 'params' and (not isinstance(value, torch.Tensor) or value.numel() == 1)
        }
        check_finite(type(optimizer).__name__, settings, may_be_infinite)


def check_disjoint(optimizers: Mapping[str, Any], model: nn.Module) -> None:
    """Whether each parameter is in one of ``optimizers`` at most, whatever its names are."""
    owner: dict[int, str] = {}
    for name, optimizer in optimizers.items():
        groups = getattr(optimizer, 'param_groups', ())
        for parameter in (each for group in groups for each in group['params']):
            other = owner.setdefault(id(parameter), name)
            if other != name:
                named = named_parameters(model, remove_duplicate=False).items()
                names = [key for key, each in named if each is parameter]
                raise ValueError(
                    f'the parameter {" = ".join(names)} is in two optimizers, {other!r} and {name!r}: choose what each '
                    "one gets, as in dict(a=dict(type='SGD', lr=0.1, params=['a.*']), …); a part that two networks "
                    'share can have its own optimizer'
                )


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


def use_fused(optimizer: Optimizer) -> bool:
    """Switch ``optimizer`` to torch's fused implementation, if its class has one for its parameters.

    Steps become faster; results differ from the default implementation in the last bits. The choice is stored in the
    parameter groups, and so in checkpoints; a resumed run keeps it.
    """
    if not can_be_fused(optimizer):
        return False
    optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]  # as constructors do; GradScaler asks
    for group in optimizer.param_groups:
        group['fused'] = True
        for parameter in group['params']:
            state = optimizer.state.get(parameter, {})  # ``state[parameter]`` would create an entry
            if isinstance(state.get('step'), torch.Tensor):  # the fused one counts steps on the parameter's device
                state['step'] = state['step'].to(parameter.device)
            if isinstance(optimizer, SGD) and group['momentum'] and state.get('momentum_buffer') is None:
                # Fused SGD fails if one parameter gets its first gradient later than another (torch 2.13), unless there
                # is a momentum buffer. Without dampening, a buffer of zeros gives the same result.
                optimizer.state[parameter]['momentum_buffer'] = torch.zeros_like(parameter, requires_grad=False)
    return True


def can_be_fused(optimizer: Optimizer) -> bool:
    """Whether the optimizer's class has a fused implementation for the devices and types of its parameters."""
    groups = optimizer.param_groups
    if any('fused' not in group or group.get('differentiable') or group.get('foreach') for group in groups):
        return False
    parameters = held_by_optimizer(optimizer)
    if any(map(is_lazy, parameters)):
        return False
    if isinstance(optimizer, SGD):
        damped = any(group['momentum'] and group['dampening'] for group in groups)  # see use_fused
        if damped or why_not_fused(optimizer):
            return False
    if not all(parameter.is_floating_point() for parameter in parameters):
        return False
    kinds = {(parameter.device, parameter.dtype) for parameter in parameters}
    try:
        # Only the constructors know for which devices and types there are kernels; no public function says it.
        samples = [torch.empty(1, device=device, dtype=dtype, requires_grad=True) for device, dtype in kinds]
        type(optimizer)(samples, lr=0.1, fused=True)  # type: ignore[call-arg]
    except (RuntimeError, TypeError, ValueError):
        return False
    return True


def why_not_fused(optimizer: Optimizer) -> str:
    """Why torch has no fused implementation for this very optimizer, where its class has one; empty otherwise."""
    if not isinstance(optimizer, SGD):
        return ''
    is_sharded = any(hasattr(each, 'device_mesh') for each in held_by_optimizer(optimizer))
    return ' (torch has no fused SGD for sharded parameters)' if is_sharded else ''


def drop_missing_fused(optimizers: Iterable[Optimizer]) -> None:
    """Let ``optimizers`` take their default implementation, and log it, where ``fused=True`` is asked and torch has
    none: its SGD fails at the first step of sharded parameters (torch 2.13)."""
    for optimizer in optimizers:
        reason = why_not_fused(optimizer)
        if reason and any(group.get('fused') for group in optimizer.param_groups):
            for group in optimizer.param_groups:
                group['fused'] = None
            optimizer.defaults['fused'] = None
            vars(optimizer).pop('_step_supports_amp_scaling', None)
            logging.getLogger('runnerkit').warning(
                'fused=True has no effect on %s%s: its default implementation is taken',
                type(optimizer).__name__,
                reason,
            )
