"""Optimizers in one kernel: where torch has them, and how one that is built already is switched over."""

from __future__ import annotations

import torch
from torch.optim import SGD, Optimizer


def use_fused(optimizer: Optimizer) -> bool:
    """Let ``optimizer`` step by torch's fused implementation, if its class has one for its parameters.

    Steps are faster, and differ from the default implementation's in the last bits. What is used stands in the
    parameter groups, and so in checkpoints: a run that is resumed goes on with it.

    Args:
        optimizer: built, or resumed, with any number of steps behind it.

    Returns:
        Whether it is fused now.
    """
    if not can_be_fused(optimizer):
        return False
    for group in optimizer.param_groups:
        group.update(fused=True, foreach=None)
        for parameter in group['params']:
            step = optimizer.state.get(parameter, {}).get('step')
            if isinstance(step, torch.Tensor):  # the fused one counts steps where the parameter is
                optimizer.state[parameter]['step'] = step.to(parameter.device)
    return True


def can_be_fused(optimizer: Optimizer) -> bool:
    """Whether the optimizer's class has a fused implementation for the devices and types of its parameters."""
    if any(group.get('differentiable') or 'fused' not in group for group in optimizer.param_groups):
        return False
    parameters = [parameter for group in optimizer.param_groups for parameter in group['params']]
    if isinstance(optimizer, SGD) and any(hasattr(parameter, 'device_mesh') for parameter in parameters):
        return False  # torch has no fused SGD for DTensor
    if not all(parameter.is_floating_point() for parameter in parameters):
        return False
    kinds = {(parameter.device, parameter.dtype) for parameter in parameters}
    try:
        # Which devices and types there are kernels for, constructors know, and nothing else that is public.
        samples = [torch.empty(1, device=device, dtype=dtype, requires_grad=True) for device, dtype in kinds]
        type(optimizer)(samples, lr=0.1, fused=True)  # type: ignore[call-arg]
    except (RuntimeError, TypeError, ValueError):
        return False
    return True
