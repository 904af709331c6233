"""Which names are those of losses."""

from __future__ import annotations

import re

_LOSS = re.compile(r'(?<![a-z])loss|loss(es)?(?![a-z])')


def names_a_loss(name: str) -> bool:
    """Whether a word of ``name`` begins or ends with "loss", as in ``loss_cls``, ``val/celoss`` and ``trainLoss``;
    none of ``glossary_accuracy`` does."""
    return 'Loss' in name or _LOSS.search(name.lower()) is not None
