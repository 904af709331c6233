"""Whether a model is being traced; and MMCV's decorators for another framework's compiler, which do nothing here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def is_jit_tracing() -> bool:
    """Whether `torch.jit.trace` is running the code that asks."""
    # Nobody traces without torch.
    torch = sys.modules.get('torch')
    return bool(torch is not None and torch.jit.is_tracing())


def jit(
    func: Callable[..., Any] | None = None,
    check_input: Any = None,
    full_shape: bool = True,
    derivate: bool = False,
    coderize: bool = False,
    optimize: bool = False,
) -> Callable[..., Any]:
    """A decorator that leaves a function as it is.

    MMCV's compiled functions under SenseTime's framework Parrots, and did nothing under torch. Where a function is to
    be compiled, `torch.compile` does that.

    Args:
        func: the function; None where the decorator is written with arguments.
        check_input: not used, like the rest.
        full_shape: not used.
        derivate: not used.
        coderize: not used.
        optimize: not used.
    """
    return _same if func is None else func


def skip_no_elena(func: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that leaves a test as it is; MMCV's skipped it under Parrots without its compiler."""
    return func


def _same(func: Callable[..., Any]) -> Callable[..., Any]:
    return func
