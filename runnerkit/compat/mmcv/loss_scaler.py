"""A manual loss scale, for training in half precision without `torch.amp.GradScaler`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from runnerkit.utils.exceptions import WrongValue

_MODES = ('dynamic', 'static')


class LossScaler:
    """The factor of the loss that keeps small gradients from vanishing in half precision.

    A dynamic scale is divided by ``scale_factor`` when gradients overflow (it stays at least 1), and multiplied by it
    after ``scale_window`` iterations without an overflow::

        (loss * scaler.loss_scale).backward()
        overflow = scaler.has_overflow(parameters)
        if not overflow:
            ...  # divide the gradients, step
        scaler.update_scale(overflow)

    Args:
        init_scale: the first scale.
        mode: ``'dynamic'``, or ``'static'``: the scale never changes, and overflows are not checked.
        scale_factor: of a dynamic scale.
        scale_window: of a dynamic scale, in iterations.

    Raises:
        ValueError: another mode.
    """

    def __init__(
        self, init_scale: float = 2**32, mode: str = 'dynamic', scale_factor: float = 2.0, scale_window: int = 1000
    ) -> None:
        if mode not in _MODES:
            raise WrongValue(f'mode can only be dynamic or static, but got {mode!r}')
        self.cur_scale = init_scale
        self.cur_iter = 0
        self.mode = mode
        self.last_overflow_iter = -1
        self.scale_factor = scale_factor
        self.scale_window = scale_window

    @property
    def loss_scale(self) -> float:
        """The scale of this iteration."""
        return self.cur_scale

    def has_overflow(self, params: Iterable[nn.Parameter]) -> bool:
        """Whether a gradient is infinite or NaN; always False for a static scale."""
        if self.mode != 'dynamic':
            return False
        return any(param.grad is not None and self._has_inf_or_nan(param.grad.detach()) for param in params)

    @staticmethod
    def _has_inf_or_nan(x: Tensor) -> bool:
        # One infinite or NaN entry makes the sum infinite or NaN.
        return not math.isfinite(float(x.float().sum()))

    def update_scale(self, overflow: bool) -> None:
        """End an iteration.

        Args:
            overflow: the result of `has_overflow`.
        """
        if self.mode != 'dynamic':
            return
        if overflow:
            self.cur_scale = max(self.cur_scale / self.scale_factor, 1)
            self.last_overflow_iter = self.cur_iter
        elif (self.cur_iter - self.last_overflow_iter) % self.scale_window == 0:
            self.cur_scale *= self.scale_factor
        self.cur_iter += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state in plain values."""
        return dict(vars(self))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a `state_dict`.

        Raises:
            KeyError: something is missing in it.
        """
        for name in vars(self):
            setattr(self, name, state_dict[name])
