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
    optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]  # as constructors do; GradScaler asks
    for group in optimizer.param_groups:
        group['fused'] = True
        for parameter in group['params']:
            state = optimizer.state.get(parameter, {})  # asking for what is not there would make it
            if isinstance(state.get('step'), torch.Tensor):  # the fused one counts steps where the parameter is
                state['step'] = state['step'].to(parameter.device)
            if isinstance(optimizer, SGD) and group['momentum'] and state.get('momentum_buffer') is None:
                # It fails where one parameter gets its first gradient later than another (2.13), unless there is a
                # momentum already; one of zero gives the same, without dampening.
                optimizer.state[parameter]['momentum_buffer'] = torch.zeros_like(parameter, requires_grad=False)
    return True


def can_be_fused(optimizer: Optimizer) -> bool:
    """Whether the optimizer's class has a fused implementation for the devices and types of its parameters."""
    groups = optimizer.param_groups
    if any('fused' not in group or group.get('differentiable') or group.get('foreach') for group in groups):
        return False
    parameters = [parameter for group in groups for parameter in group['params']]
    if isinstance(optimizer, SGD):
        # torch has no fused SGD for DTensor. For dampening see use_fused.
        damped = any(group['momentum'] and group['dampening'] for group in groups)
        if damped or any(hasattr(parameter, 'device_mesh') for parameter in parameters):
            return False
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
