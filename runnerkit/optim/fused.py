"""Fused optimizers: which ones torch has, and how to switch an existing optimizer to its fused implementation."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import torch
from torch.optim import SGD, Optimizer


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
    parameters = [parameter for group in groups for parameter in group['params']]
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
    is_sharded = any(hasattr(each, 'device_mesh') for group in optimizer.param_groups for each in group['params'])
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
