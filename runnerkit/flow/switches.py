"""The config's switches: top-level keys that change how a run computes, not what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from runnerkit.nn.compiled import check_options
from runnerkit.optim.update import AMP_DTYPES

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
    amp, fp16 = cfg.get('amp'), cfg.get('fp16')
    if amp is not None and not (isinstance(amp, str) and amp in AMP_DTYPES):
        raise ValueError(f"amp must be 'bf16', 'fp16' or None, but got {amp!r}")
    if fp16 is not None and not isinstance(fp16, Mapping):
        raise TypeError(f"fp16 must be a dict such as fp16=dict(loss_scale='dynamic'), but got {fp16!r}")


def use_channels_last(model: nn.Module) -> None:
    """Lay out the model's 4-D weights with their channels last."""
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.dim() == 4:
            tensor.data = tensor.data.to(memory_format=torch.channels_last)


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
