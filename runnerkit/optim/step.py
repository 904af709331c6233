"""One step of an optimizer, without what torch wraps around it for listeners where there are none."""

from __future__ import annotations

from typing import Any

from torch.autograd import profiler
from torch.optim import Optimizer
from torch.optim import optimizer as _torch

#: torch puts this function around the ``step`` of every optimizer's class.
_WRAPPER: Any = Optimizer.profile_hook_step(lambda: None).__code__

#: The names that it uses in 2.13: it names the step for the profiler, and calls hooks. Another version's may do more.
_NAMES = """
    torch autograd profiler record_function _optimizer_step_code
    chain values _global_optimizer_pre_hooks _optimizer_step_pre_hooks
    _global_optimizer_post_hooks _optimizer_step_post_hooks
    cast Optimizer __class__ __name__ isinstance tuple len RuntimeError
"""


def is_known(wrapper: Any) -> bool:
    """Whether the code of ``wrapper`` uses nothing else than what is known here."""
    return set(wrapper.co_names) <= set(_NAMES.split()) and hasattr(profiler, '_is_profiler_enabled')


_IS_KNOWN = is_known(_WRAPPER)


def step(optimizer: Optimizer) -> None:
    """What ``optimizer.step()`` does, faster.

    torch wraps the method into a function that names the step for the profiler, which takes 20 to 40 µs whether one
    runs or not, and that calls the optimizer's step hooks. Where nobody listens before the step, what is wrapped is
    called directly, and then the hooks after it as the wrapper does. Where somebody does (a profiler, a hook before
    the step, one for all optimizers), where the step is another function (one that a scheduler of torch or a library
    has put in its place), or the wrapper one that is not known here, it is ``optimizer.step()``.
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
