"""One step of an optimizer, without torch's wrapper for profilers and hooks if there are none."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import profiler
from torch.optim import Optimizer
from torch.optim import optimizer as _torch

#: Versions of torch whose `Optimizer.profile_hook_step` was read: without profiler and hooks, `step` does the same.
KNOWN = ('2.13',)


def wrapper_code(version: str) -> object:
    """Return the code object of torch's wrapper around every optimizer's ``step``; None if ``version`` is not one of
    `KNOWN`."""
    if '.'.join(version.split('.')[:2]) not in KNOWN:
        return None
    wrap: Any = Optimizer.profile_hook_step
    return wrap(lambda: None).__code__


_WRAPPER = wrapper_code(torch.__version__)


def step(optimizer: Optimizer) -> None:
    """Do what ``optimizer.step()`` does, faster.

    torch wraps the method in a function that names the step for the profiler and calls the optimizer's step hooks. The
    name alone takes 20 to 40 µs, even without a profiler. If there are no hooks before the step and no global hooks,
    this function calls the wrapped method directly, and then the hooks after the step. It calls ``optimizer.step()``
    while `torch.profiler` runs, if something has replaced ``step`` (torch's schedulers do), and with versions of torch
    that are not `KNOWN`. Only tools that record names without torch's profiler, such as an ``ExecutionTraceObserver``
    alone, do not see this step.
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
