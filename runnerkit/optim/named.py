"""Iterate over one optimizer, a dict of them, or none, in the same way."""

from __future__ import annotations

from torch.optim import Optimizer


def named_optimizers(optimizer: Optimizer | dict[str, Optimizer] | None) -> dict[str, Optimizer]:
    """Return the optimizers by name; a single one has the empty name."""
    if optimizer is None:
        return {}
    return optimizer if isinstance(optimizer, dict) else {'': optimizer}
