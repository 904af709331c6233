"""Detects NaN and infinite numbers on the device, without waiting for it."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from runnerkit.parallel.dtensors import local_part


def largest(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return the largest magnitude in ``tensors``, one number per device; NaN if there is a NaN among them.

    Of sharded tensors, it is that of this rank's part.
    """
    by_device: dict[torch.device, list[Tensor]] = {}
    for tensor in tensors:
        values = local_part(tensor)
        values = values._values() if values.is_sparse else values
        if values.numel() and (values.is_floating_point() or values.is_complex()):
            by_device.setdefault(values.device, []).append(values)
    return [
        torch.stack([norm.float() for norm in torch._foreach_norm(group, ord=float('inf'))]).amax()
        for group in by_device.values()
    ]


@torch.no_grad()
def find_non_finite(tensors: Mapping[Any, Any]) -> dict[Any, str]:
    """Which of ``tensors`` have values that are NaN or infinite, and how many, such as ``'3 of 10 values'``.

    While all are finite, this is one sum per tensor on the CPU, elsewhere one fused reduction and one transfer per
    device. Of sharded tensors it looks at this rank's part. What is neither a floating-point tensor nor a sparse one is
    left out.
    """
    local = {name: each for name, value in tensors.items() if (each := _numbers(value)) is not None}
    if _seem_finite(local.values()):
        return {}
    # Finite numbers may be too large for a sum, or those of 64 bits for `largest`.
    bad = {name: int((~torch.isfinite(each)).sum()) for name, each in local.items()}
    return {name: f'{count} of {local[name].numel()} values' for name, count in bad.items() if count}


def _seem_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether all values are finite; False also if some are very large."""
    elsewhere = []
    for each in tensors:
        if each.device.type != 'cpu':
            elsewhere.append(each)
        # A tenth of the time that the largest magnitude takes there.
        elif not cmath.isfinite(each.sum(dtype=torch.float32 if each.itemsize < 4 else None).item()):
            return False
    return all(math.isfinite(number.item()) for number in largest(elsewhere))


def _numbers(value: Any) -> Tensor | None:
    """The floating-point values of a tensor, or of this rank's part of it; None if there are none that can be read."""
    if not isinstance(value, Tensor) or is_lazy(value):
        return None
    value = local_part(value)
    value = value._values() if value.is_sparse else value
    is_plain = type(value) is Tensor and value.layout == torch.strided and not value.is_meta
    if not is_plain or not (value.is_floating_point() or value.is_complex()):
        return None
    return value.float() if value.itemsize == 1 else value  # numbers of 8 bits have no norms


def first_bad(checks: Sequence[tuple[int, Tensor]]) -> int:
    """Return the lowest number of a failed check, or 0. Waits for the device.

    Args:
        checks: pairs of a number, from 1, and a truth value on a device. Several may have the same number.
    """
    numbers, passed = zip(*checks, strict=True) if checks else ((), ())
    results = torch.stack([each.to(passed[0].device) for each in passed]).tolist() if passed else []
    return min((number for number, is_good in zip(numbers, results, strict=True) if not is_good), default=0)


class GradientWatch:
    """Looks at the gradients right before each step of an optimizer, on their device.

    Steps of an optimizer with a gradient scaler are left out, because the scaler checks them.

    Args:
        optimizers: those whose steps are watched.
        see: called with the largest magnitude of the gradients of each step, one number per device.
    """

    def __init__(self, optimizers: Iterable[Optimizer], see: Callable[[Tensor], None]) -> None:
        self._see = see
        self._handles = [each.register_step_pre_hook(self._before) for each in optimizers]

    def remove(self) -> None:
        """Stop watching."""
        for handle in self._handles:
            handle.remove()

    def _before(self, optimizer: Optimizer, *_: Any) -> None:
        if getattr(optimizer, 'found_inf', None) is not None:
            return  # a gradient scaler checks this step
        parameters = (each for group in optimizer.param_groups for each in group['params'])
        for magnitude in largest(each.grad for each in parameters if each.grad is not None):
            self._see(magnitude)
