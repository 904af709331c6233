"""One optimizer, a dict of them by name, or none: the same loop for all."""

from __future__ import annotations

from torch.optim import Optimizer


def named_optimizers(optimizer: Optimizer | dict[str, Optimizer] | None) -> dict[str, Optimizer]:
    """The optimizers by name; a single one has the empty name."""
    if optimizer is None:
        return {}
    return optimizer if isinstance(optimizer, dict) else {'': optimizer}
