"""A hook made of one function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runnerkit.hooks.hook import HOOKS, POINTS, RINGS, Hook
from runnerkit.utils.exceptions import WrongType, WrongValue


@HOOKS.register_module()
class ClosureHook(Hook):
    """Calls one function at one point.

    Args:
        fn_name: the point's name, e.g. ``'after_train_iter'``.
        fn: called with the runner.

    Raises:
        WrongValue: there is no such point.
        WrongType: ``fn`` is not callable.
    """

    def __init__(self, fn_name: str, fn: Callable[[Any], Any]) -> None:
        if fn_name not in (*POINTS, *RINGS):
            raise WrongValue(f'there is no point {fn_name!r}; the points are {", ".join((*POINTS, *RINGS))}')
        if not callable(fn):
            raise WrongType(f'fn must be callable with the runner, but got {fn!r}')
        setattr(self, fn_name, fn)
