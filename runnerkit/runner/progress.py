"""What a run has done: the one place that says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass
class Progress:
    """How far a run is. It advances right before the ``after_*`` points and is saved as it stands.

    Attributes:
        epochs: completed training epochs; in the iteration runner, completed passes over the loader trained on last.
        iters: completed training iterations, which is the number of updates of a run without accumulation.
        epoch_is_open: whether a training epoch has begun and not ended; always False in the iteration runner, whose
            readers know their own passes.
        batches: of the open epoch, how many batches this rank has trained on.
        samples: of the open epoch, how many samples of its order all ranks together have consumed; None where the
            ranks' shares are not ours to know (batch samplers, streams).
        entry: the index of the workflow's entry.
        units: how many units (epochs or iterations) of that entry are done.
    """

    epochs: int = 0
    iters: int = 0
    epoch_is_open: bool = False
    batches: int = 0
    samples: int | None = 0
    entry: int = 0
    units: int = 0

    def state_dict(self) -> dict[str, Any]:
        """All fields by name."""
        return asdict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Be what `state_dict` gave; fields that it does not have get their defaults."""
        for field in fields(self):
            setattr(self, field.name, state.get(field.name, field.default))
