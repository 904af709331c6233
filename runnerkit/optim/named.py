"""One optimizer, or a dict of them by name: the same loop for both."""

from __future__ import annotations

from torch.optim import Optimizer


def named_optimizers(optimizer: Optimizer | dict[str, Optimizer]) -> dict[str, Optimizer]:
    """The optimizers by name; a single one has the empty name."""
    return optimizer if isinstance(optimizer, dict) else {'': optimizer}
