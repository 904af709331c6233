"""Top-level config keys that change how a run computes, not what it computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from runnerkit.nn.compiled import check_options
from runnerkit.optim.update import AMP_DTYPES
from runnerkit.registry import placed_errors
from runnerkit.utils.numbers import check_whole_number

#: Keys that are True, False or None.
SWITCHES = ('channels_last', 'cudnn_benchmark', 'tf32', 'prefetch')


def check_switches(cfg: Any) -> None:
    """Refuse wrong values before anything is built.

    Raises:
        TypeError: a value is of a wrong type.
        ValueError: ``num_threads`` is below 1, ``compile`` has unknown keys, or ``amp`` is not known.
    """
    for key in SWITCHES:
        value = cfg.get(key)
        with placed_errors(cfg, key):
            if value is not None and not isinstance(value, bool):
                raise TypeError(f'{key} must be True or False, but got {value!r}')
    with placed_errors(cfg, 'num_threads'):
        check_whole_number('num_threads', cfg.get('num_threads'), at_least=1, or_none=True)
    for key in ('compile', 'amp', 'fp16'):
        with placed_errors(cfg, key):
            check_mode(key, cfg.get(key))


def check_mode(key: str, value: Any) -> None:
    """`check_switches` for one of the keys that have more values than True and False."""
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
