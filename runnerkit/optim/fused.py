"""Fused optimizers: which ones torch has, and how to switch an existing optimizer to its fused implementation."""

from __future__ import annotations

import torch
from torch.optim import SGD, Optimizer


def use_fused(optimizer: Optimizer) -> bool:
    """Switch ``optimizer`` to torch's fused implementation, if its class has one for its parameters.

    Steps become faster; results differ from the default implementation in the last bits. The choice is stored in the
    parameter groups, and so in checkpoints; a resumed run keeps it.

    Args:
        optimizer: new or resumed, after any number of steps.

    Returns:
        Whether it is fused now.
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
        # torch has no fused SGD for DTensor. For dampening see use_fused.
        damped = any(group['momentum'] and group['dampening'] for group in groups)
        if damped or any(hasattr(parameter, 'device_mesh') for parameter in parameters):
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
