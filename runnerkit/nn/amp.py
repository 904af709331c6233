"""Half precision for parts of a model: decorators of methods, switched on by `wrap_fp16_model`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from runnerkit.distributed import allreduce_grads
from runnerkit.parallel.scatter_gather import like

__all__ = [
    'allreduce_grads',
    'auto_fp16',
    'cast_tensor_type',
    'force_fp32',
    'patch_forward_method',
    'patch_norm_fp32',
    'wrap_fp16_model',
]

Method = TypeVar('Method', bound=Callable[..., Any])


def auto_fp16(
    apply_to: Iterable[str] | None = None,
    out_fp32: bool = False,
    supported_types: tuple[type, ...] = (nn.Module,),
) -> Callable[[Method], Method]:
    """Let a method of a model run in half precision if the model has ``fp16_enabled = True``.

    Its arguments in single precision are cast to half precision, and it runs under autocast: on the GPU if there is
    one, otherwise on the CPU. If ``fp16_enabled`` is not set, the method is unchanged.

    Args:
        apply_to: the names of the arguments to cast; by default all named arguments except keyword-only ones.
        out_fp32: cast the result back to single precision.
        supported_types: the classes whose methods may be decorated.

    Raises:
        TypeError: the method is called on an object of another class.
    """
    return _runs_in(torch.float16, apply_to, out_fp32, supported_types, '@auto_fp16')


def force_fp32(apply_to: Iterable[str] | None = None, out_fp16: bool = False) -> Callable[[Method], Method]:
    """Let a method (a loss, for example) run in single precision inside a model with ``fp16_enabled = True``.

    Its arguments in half precision are cast to single precision, and it runs without autocast. If ``fp16_enabled`` is
    not set, the method is unchanged.

    Args:
        apply_to: the names of the arguments to cast; by default all named arguments except keyword-only ones.
        out_fp16: cast the result back to half precision.

    Raises:
        TypeError: the method is called on an object that is not a module.
    """
    return _runs_in(torch.float32, apply_to, out_fp16, (nn.Module,), '@force_fp32')


def wrap_fp16_model(model: nn.Module) -> None:
    """Switch on the decorators `auto_fp16` and `force_fp32` in every module that has a flag ``fp16_enabled``.

    Weights stay in single precision: autocast casts them where they are used.
    """
    for module in model.modules():
        if hasattr(module, 'fp16_enabled'):
            module.fp16_enabled = True  # type: ignore[assignment]


def patch_norm_fp32(module: nn.Module) -> nn.Module:
    """Convert the batch and group norms in ``module`` to single precision; group norms still take and return half."""
    for part in module.modules():
        if isinstance(part, (_BatchNorm, nn.GroupNorm)):
            part.float()
            if isinstance(part, nn.GroupNorm):
                part.forward = patch_forward_method(part.forward, torch.half, torch.float)  # type: ignore[method-assign]
    return module


def patch_forward_method(
    func: Callable[..., Any], src_type: torch.dtype, dst_type: torch.dtype, convert_output: bool = True
) -> Callable[..., Any]:
    """Wrap ``func`` so that its arguments of ``src_type`` are cast to ``dst_type``."""

    @functools.wraps(func)
    def forward(*args: Any, **kwargs: Any) -> Any:
        result = func(*cast_tensor_type(args, src_type, dst_type), **cast_tensor_type(kwargs, src_type, dst_type))
        return cast_tensor_type(result, dst_type, src_type) if convert_output else result

    return forward


def cast_tensor_type(inputs: Any, src_type: torch.dtype, dst_type: torch.dtype) -> Any:
    """Return ``inputs`` with its tensors of ``src_type`` cast to ``dst_type``."""
    if isinstance(inputs, Tensor):
        return inputs.to(dst_type) if inputs.dtype == src_type else inputs
    if isinstance(inputs, (str, bytes, nn.Module, np.ndarray)):
        return inputs
    if isinstance(inputs, Mapping):
        cast = {key: cast_tensor_type(value, src_type, dst_type) for key, value in inputs.items()}
        if isinstance(inputs, dict):
            return like(inputs, cast)
        return type(inputs)(cast)  # type: ignore[call-arg]
    if isinstance(inputs, (list, tuple, set, frozenset)):
        items = [cast_tensor_type(each, src_type, dst_type) for each in inputs]
        return type(inputs)(*items) if hasattr(inputs, '_fields') else type(inputs)(items)
    return inputs


def _runs_in(
    dtype: torch.dtype, apply_to: Iterable[str] | None, cast_back: bool, owners: tuple[type, ...], decorator: str
) -> Callable[[Method], Method]:
    """Return the decorator of methods that run in ``dtype``, half or single; arguments of the other type are cast."""
    other = torch.float32 if dtype == torch.float16 else torch.float16
    wanted = [apply_to] if isinstance(apply_to, str) else apply_to
    cast = functools.partial(cast_tensor_type, src_type=other, dst_type=dtype)

    def decorate(method: Method) -> Method:
        spec = inspect.getfullargspec(method)
        names = spec.args if wanted is None else list(wanted)

        @functools.wraps(method)
        def work(*args: Any, **kwargs: Any) -> Any:
            if not args or not isinstance(args[0], owners):
                owner = type(args[0]).__qualname__ if args else 'nothing'
                raise TypeError(
                    f'{decorator} can only be used to decorate the method of those classes {owners}, but '
                    f'{method.__name__} was called on {owner}'
                )
            if not getattr(args[0], 'fp16_enabled', False):
                return method(*args, **kwargs)
            args = tuple(
                cast(each) if i < len(spec.args) and spec.args[i] in names else each for i, each in enumerate(args)
            )
            kwargs = {name: cast(each) if name in names else each for name, each in kwargs.items()}
            device_type = 'cuda' if torch.cuda.is_available() else 'cpu'
            with torch.autocast(device_type, dtype=torch.float16, enabled=dtype == torch.float16):
                result = method(*args, **kwargs)
            return cast_tensor_type(result, dtype, other) if cast_back else result

        return work  # type: ignore[return-value]

    return decorate
