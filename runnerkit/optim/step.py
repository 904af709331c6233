"""One step of an optimizer, without what torch wraps around it for listeners where there are none."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import profiler
from torch.optim import Optimizer
from torch.optim import optimizer as _torch

#: Versions of torch whose `Optimizer.profile_hook_step` was looked at: it does what `step` below leaves out or repeats.
KNOWN = ('2.13',)


def wrapper_code(version: str) -> object:
    """The code of the function that torch puts around the ``step`` of every optimizer's class; None if this version of
    torch is not one of `KNOWN`."""
    if '.'.join(version.split('.')[:2]) not in KNOWN:
        return None
    wrap: Any = Optimizer.profile_hook_step
    return wrap(lambda: None).__code__


_WRAPPER = wrapper_code(torch.__version__)


def step(optimizer: Optimizer) -> None:
    """What ``optimizer.step()`` does, faster.

    torch wraps the method into a function that names the step for the profiler, which takes 20 to 40 µs whether one
    runs or not, and that calls the optimizer's step hooks. Where there are no hooks before the step, and none of all
    optimizers, this calls the wrapped method directly, and then the hooks after it as the wrapper does. It calls
    ``optimizer.step()`` while `torch.profiler` runs, where something has replaced ``step`` (a scheduler of torch does),
    and with versions of torch that are not `KNOWN`. Only what records names without torch's profiler, such as an
    ``ExecutionTraceObserver`` alone, misses this one.
    """
    wrapper: Any = getattr(type(optimizer), 'step', None)
    if (
        _WRAPPER is not None
        and getattr(wrapper, '__code__', None) is _WRAPPER
        and not profiler._is_profiler_enabled
        and 'step' not in vars(optimizer)
        and not optimizer._optimizer_step_pre_hooks
        and not _torch._global_optimizer_pre_hooks
        and not _torch._global_optimizer_post_hooks
    ):
        wrapper.__wrapped__(optimizer)
        for hook in optimizer._optimizer_step_post_hooks.values():
            hook(optimizer, (optimizer,), {})
    else:
        optimizer.step()
