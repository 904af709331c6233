"""One step of an optimizer, without what torch wraps around it for listeners where there are none."""

from __future__ import annotations

from typing import Any

from torch.autograd import profiler
from torch.optim import Optimizer
from torch.optim import optimizer as _torch

#: What torch's wrapper around ``step`` uses in 2.13: it names the step for the profiler, and calls hooks.
_NAMES = """
    torch autograd profiler record_function _optimizer_step_code
    chain values _global_optimizer_pre_hooks _optimizer_step_pre_hooks
    _global_optimizer_post_hooks _optimizer_step_post_hooks
    cast Optimizer __class__ __name__ isinstance tuple len RuntimeError
"""


def code_of_wrapper() -> Any:
    """The code of the function that torch puts around the ``step`` of every optimizer's class; None if that cannot be
    found out."""
    try:
        return Optimizer.profile_hook_step(lambda: None).__code__
    except (AttributeError, TypeError):
        return None


def is_known(wrapper: Any) -> bool:
    """Whether this code is the one that is known here: of another version of torch it may do something else."""
    return (
        wrapper is not None
        and set(wrapper.co_names) == set(_NAMES.split())
        and wrapper.co_freevars == ('func',)
        and not any(hasattr(constant, 'co_names') for constant in wrapper.co_consts)
        and hasattr(profiler, '_is_profiler_enabled')
    )


_WRAPPER = code_of_wrapper()
_IS_KNOWN = is_known(_WRAPPER)


def step(optimizer: Optimizer) -> None:
    """What ``optimizer.step()`` does, faster.

    torch wraps the method into a function that names the step for the profiler, which takes 20 to 40 µs whether one
    runs or not, and that calls the optimizer's step hooks. Where none of them is before the step, or of all optimizers,
    what is wrapped is called directly, and then the hooks after it as the wrapper does. While `torch.profiler` runs,
    where the step is another function (one that a scheduler of torch or a library has put in its place), or the wrapper
    one that is not known here, it is ``optimizer.step()``. Only what records names without torch's profiler, such as an
    ``ExecutionTraceObserver`` alone, misses this one.
    """
    wrapper: Any = getattr(type(optimizer), 'step', None)
    if (
        _IS_KNOWN
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
