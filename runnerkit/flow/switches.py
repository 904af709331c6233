"""The config's switches: top-level keys that say how a run computes, not what it computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from runnerkit.nn.compiled import check_options

#: Keys that are True, False or None.
SWITCHES = ('channels_last', 'cudnn_benchmark', 'tf32', 'prefetch')


def check_switches(cfg: Any) -> None:
    """Refuse wrong values before anything is built.

    Raises:
        TypeError: a switch is neither True nor False, or ``compile`` is no dict either.
        ValueError: ``compile`` has keys that nobody knows.
    """
    for key in SWITCHES:
        value = cfg.get(key)
        if value is not None and not isinstance(value, bool):
            raise TypeError(f'{key} must be True or False, but got {value!r}')
    options = compile_options(cfg)
    if options is not None:
        check_options(options)


def compile_options(cfg: Any) -> dict[str, Any] | None:
    """What ``compile`` says, as arguments of `runnerkit.nn.compiled.compile_model`; None where it is off.

    Raises:
        TypeError: it is neither True, False, None nor a dict.
    """
    options = cfg.get('compile')
    if options is None or options is False:
        return None
    if options is True:
        return {}
    if not isinstance(options, Mapping):
        raise TypeError(
            f"compile must be True, False or a dict such as compile=dict(mode='reduce-overhead'), but got {options!r}"
        )
    return dict(options)


def set_tf32(allowed: bool) -> None:
    """Let CUDA multiply and convolve float32 with TF32, ten bits of mantissa in place of 23; or forbid it."""
    # Not fp32_precision, which is newer: where it has been set, torch.compile fails in asking for the precision (2.13).
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
