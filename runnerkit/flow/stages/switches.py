"""Top-level config keys that change how a run computes, not what it computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from runnerkit.nn.compiled import check_options
from runnerkit.optim.update import AMP_DTYPES

#: These keys.
SWITCHES = ('channels_last', 'cudnn_benchmark', 'tf32', 'prefetch', 'num_threads', 'compile', 'amp', 'fp16')


def check_mode(key: str, value: Any) -> None:
    """Refuse wrong values of ``amp``, ``fp16`` and ``compile``.

    Raises:
        TypeError: ``value`` is of a wrong type.
        ValueError: ``compile`` has unknown keys, or ``amp`` is not known.
    """
    if key == 'compile' and (options := compile_options({key: value})) is not None:
        check_options(options)
    if key == 'amp' and value is not None and not (isinstance(value, str) and value in AMP_DTYPES):
        raise ValueError(f"amp must be 'bf16', 'fp16' or None, but got {value!r}")
    if key == 'fp16' and value is not None and not isinstance(value, Mapping):
        raise TypeError(f"fp16 must be a dict such as fp16=dict(loss_scale='dynamic'), but got {value!r}")


def use_channels_last(model: nn.Module) -> None:
    """Convert the model's 4-D weights to the channels_last memory format."""
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.dim() == 4:
            tensor.data = tensor.data.to(memory_format=torch.channels_last)


def compile_options(cfg: Any) -> dict[str, Any] | None:
    """The config's ``compile`` as arguments of `runnerkit.nn.compiled.compile_model`; None if it is off.

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
    """Allow or forbid TF32 (10 instead of 23 mantissa bits) for float32 matrix products and convolutions on CUDA."""
    # Not the newer fp32_precision: if it is set, torch.compile fails when it reads the precision (torch 2.13).
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
