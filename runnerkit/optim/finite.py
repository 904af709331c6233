"""Detects NaN and infinite numbers on the device, without waiting for it."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from runnerkit.distributed import reduce_max
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


class StepGuard:
    """Checks the gradients right before each optimizer step and can skip steps with bad ones.

    Steps of an optimizer with a gradient scaler are not checked, because the scaler does. A skipped step changes
    neither weights nor state; its gradients can be read afterwards. A fused optimizer skips the step on the device; for
    any other one, the host must wait for the device.

    Args:
        optimizers: the optimizers to guard, each separately.
        see: called with the largest magnitude of the gradients of each step, unless ``withholds``.

    Attributes:
        withholds: whether to skip steps with gradients that are not finite.
        steps: how many steps were guarded.
    """

    def __init__(self, optimizers: Sequence[Optimizer], see: Callable[[Tensor], None]) -> None:
        self.withholds = False
        self.steps = 0
        self._see = see
        self._counts: Tensor | None = None  # skipped since the last call of `left_out`, and in a row
        self._fused_skips: set[Optimizer] = set()
        self._kept: dict[Optimizer, list[tuple[nn.Parameter, Tensor]]] = {}
        self._handles = [
            handle
            for each in optimizers
            for handle in (each.register_step_pre_hook(self._before), each.register_step_post_hook(self._after))
        ]

    def remove(self) -> None:
        """Stop guarding."""
        for handle in self._handles:
            handle.remove()

    def left_out(self) -> tuple[int, int]:
        """Return how many steps were skipped since the last call, and how many in a row; waits for the device."""
        if self._counts is None:
            return 0, 0
        new, row = self._counts.tolist()
        self._counts[0] = 0
        return int(new), int(row)

    def _before(self, optimizer: Optimizer, *_: Any) -> None:
        if getattr(optimizer, 'found_inf', None) is not None:
            return  # a gradient scaler checks this step
        self.steps += 1
        held = [(p, p.grad) for group in optimizer.param_groups for p in group['params'] if p.grad is not None]
        magnitudes = largest(grad for _, grad in held)
        if not self.withholds:
            for magnitude in magnitudes:
                self._see(magnitude)
            return
        if any(hasattr(grad, 'to_local') for _, grad in held):
            magnitudes = [_largest_of_ranks(magnitudes, held[0][1].device)]
        if not magnitudes:
            return
        device = magnitudes[0].device
        bad = ~torch.isfinite(torch.stack([each.to(device) for each in magnitudes])).all()
        if self._counts is None:
            self._counts = torch.zeros(2, dtype=torch.int64, device=device)
        new, row = self._counts
        new.add_(bad)
        row.add_(1).mul_(bad)
        if is_fused(optimizer):
            optimizer.found_inf = bad.float()  # type: ignore[attr-defined]
            self._fused_skips.add(optimizer)
        elif bad:
            for parameter, _ in held:
                parameter.grad = None
            self._kept[optimizer] = held

    def _after(self, optimizer: Optimizer, *_: Any) -> None:
        if optimizer in self._fused_skips:
            self._fused_skips.remove(optimizer)
            del optimizer.found_inf  # type: ignore[attr-defined]
        for parameter, grad in self._kept.pop(optimizer, ()):
            parameter.grad = grad


def _largest_of_ranks(magnitudes: Sequence[Tensor], device: torch.device) -> Tensor:
    """Infinite if a magnitude of any rank is not finite, else 0: ranks with parts of a gradient must act alike."""
    bad = torch.zeros((), device=device)
    for each in magnitudes:
        bad = torch.maximum(bad, (~torch.isfinite(each)).float().to(device))
    if device.type == 'cpu':  # where the update is made, which may not be where the ranks communicate
        bad = torch.tensor(reduce_max(float(bad)))
    else:
        dist.all_reduce(bad, dist.ReduceOp.MAX)
    return torch.where(bad > 0, torch.inf, 0.0)


def is_fused(optimizer: Optimizer) -> bool:
    """Whether the optimizer's step checks ``found_inf`` itself, on the device."""
    fused = all(group.get('fused') for group in optimizer.param_groups)
    return fused and bool(getattr(optimizer, '_step_supports_amp_scaling', False))
