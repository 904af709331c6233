"""Half precision for parts of a model: decorators of methods, switched on by `wrap_fp16_model`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
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
    """Let a method of a model work in half precision where the model says ``fp16_enabled = True``.

    Its arguments in single precision are cast to half, and it runs under autocast: on the GPU where there is one,
    otherwise on the CPU. Of a model that does not say so, it is the method that it was.

    Args:
        apply_to: the names of the arguments to cast; by default all that the method names, but keyword-only ones.
        out_fp32: cast what it returns back.
        supported_types: what the method's owner may be.

    Raises:
        TypeError: the method is called on something else.
    """
    return _runs_in(torch.float16, apply_to, out_fp32, supported_types, '@auto_fp16')


def force_fp32(apply_to: Iterable[str] | None = None, out_fp16: bool = False) -> Callable[[Method], Method]:
    """Let a method work in single precision (a loss, say) inside of a model that says ``fp16_enabled = True``.

    Its arguments in half precision are cast to single, and it runs without autocast. Of a model that does not say so,
    it is the method that it was.

    Args:
        apply_to: the names of the arguments to cast; by default all that the method names, but keyword-only ones.
        out_fp16: cast what it returns back.

    Raises:
        TypeError: the method is called on something else than a module.
    """
    return _runs_in(torch.float32, apply_to, out_fp16, (nn.Module,), '@force_fp32')


def wrap_fp16_model(model: nn.Module) -> None:
    """Switch on what `auto_fp16` and `force_fp32` have decorated, in every module that has a flag ``fp16_enabled``.

    Weights stay in single precision: autocast casts them where they are used.
    """
    for module in model.modules():
        if hasattr(module, 'fp16_enabled'):
            module.fp16_enabled = True  # type: ignore[assignment]


def patch_norm_fp32(module: nn.Module) -> nn.Module:
    """Put the batch and group norms in ``module`` into single precision; group norms take half and give half."""
    for part in module.modules():
        if isinstance(part, (_BatchNorm, nn.GroupNorm)):
            part.float()
            if isinstance(part, nn.GroupNorm):
                part.forward = patch_forward_method(part.forward, torch.half, torch.float)  # type: ignore[method-assign]
    return module


def patch_forward_method(
    func: Callable[..., Any], src_type: torch.dtype, dst_type: torch.dtype, convert_output: bool = True
) -> Callable[..., Any]:
    """``func`` with its arguments of ``src_type`` cast to ``dst_type``.

    Args:
        func: a function of tensors.
        src_type: what its arguments are.
        dst_type: what it works in.
        convert_output: cast what it returns to ``src_type``.
    """

    @functools.wraps(func)
    def forward(*args: Any, **kwargs: Any) -> Any:
        result = func(*cast_tensor_type(args, src_type, dst_type), **cast_tensor_type(kwargs, src_type, dst_type))
        return cast_tensor_type(result, dst_type, src_type) if convert_output else result

    return forward


def cast_tensor_type(inputs: Any, src_type: torch.dtype, dst_type: torch.dtype) -> Any:
    """``inputs`` with its tensors of ``src_type`` as ``dst_type``.

    Args:
        inputs: tensors in mappings, lists, tuples and sets. Modules, arrays, text and anything else stay as they are.
        src_type: which tensors are cast.
        dst_type: what they become.
    """
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
    """The decorator of methods that work in ``dtype``, half or single, on arguments of the other."""
    other = torch.float32 if dtype == torch.float16 else torch.float16
    wanted = [apply_to] if isinstance(apply_to, str) else apply_to

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
            args, kwargs = _cast_named(names, spec.args, args, kwargs, other, dtype)
            with torch.autocast(_device_type(), dtype=torch.float16, enabled=dtype == torch.float16):
                result = method(*args, **kwargs)
            return cast_tensor_type(result, dtype, other) if cast_back else result

        return work  # type: ignore[return-value]

    return decorate


def _cast_named(
    names: Collection[str],
    positions: list[str],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    src_type: torch.dtype,
    dst_type: torch.dtype,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, with those in ``names`` cast; what goes into ``*args`` has no name."""
    cast = [
        cast_tensor_type(value, src_type, dst_type) if i < len(positions) and positions[i] in names else value
        for i, value in enumerate(args)
    ]
    cast_kwargs = {
        name: cast_tensor_type(value, src_type, dst_type) if name in names else value for name, value in kwargs.items()
    }
    return tuple(cast), cast_kwargs


def _device_type() -> str:
    return 'cuda' if torch.cuda.is_available() else 'cpu'
