"""Small functions of MMCV's that runnerkit itself has no use for."""

from __future__ import annotations

from torch import nn

from runnerkit.optim.builder import TORCH_OPTIMIZERS


def register_torch_optimizers() -> list[str]:
    """The names of torch's optimizers, which `OPTIMIZERS` knows without being told."""
    return TORCH_OPTIMIZERS


def get_bases_name(m: nn.Module) -> list[str]:
    """The names of the classes right above that of a module, by which initializers find layers."""
    return [base.__name__ for base in type(m).__bases__]
