"""Small functions of MMCV that runnerkit itself does not use."""

from __future__ import annotations

from torch import nn

from runnerkit.optim.builder import TORCH_OPTIMIZERS


def register_torch_optimizers() -> list[str]:
    """Return the names of torch's optimizers, which `OPTIMIZERS` already knows."""
    return TORCH_OPTIMIZERS


def get_bases_name(m: nn.Module) -> list[str]:
    """Return the names of the direct base classes of a module's class, which initializers use to find layers."""
    return [base.__name__ for base in type(m).__bases__]
