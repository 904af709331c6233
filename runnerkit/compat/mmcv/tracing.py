"""Whether a model is being traced; and MMCV's decorators for another framework's compiler, which do nothing here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def is_jit_tracing() -> bool:
    """Whether the calling code is being traced by `torch.jit.trace`."""
    # If torch is not imported, nothing is traced.
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
    """A decorator that does not change the function.

    MMCV's compiled functions under SenseTime's framework Parrots, and did nothing under torch. Use `torch.compile` to
    compile a function.

    Args:
        func: the function; None if the decorator is used with arguments.
        check_input: not used, like the rest.
        full_shape: not used.
        derivate: not used.
        coderize: not used.
        optimize: not used.
    """
    return _same if func is None else func


def skip_no_elena(func: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that does not change the test; MMCV's skips it under Parrots without its compiler."""
    return func


def _same(func: Callable[..., Any]) -> Callable[..., Any]:
    return func
