"""What is saved of a reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from runnerkit.data.kinds import Order, order_of


@dataclass
class ReaderState:
    """Where one rank is in a loader, and what the loader holds. Checkpoints have it as a dict of its fields.

    Attributes:
        about: what a resumed run compares of the loader, see `runnerkit.data.kinds.about`; empty if it is not known.
        epoch: the running pass, from 0.
        begun: whether a pass was open.
        batches: of the open pass, how many batches this rank has consumed.
        samples: of its order, how many samples all ranks together have consumed; None if that is not known.
        began: all states at the beginning of the open pass.
        first: all states before its first batch, if that came later.
        held: what the loader holds, by place, see `runnerkit.data.held.Held`.
        of_files: whether attributes of objects of the user's files are in ``held``; at first they were not.
        unsaved: the places of what it holds and cannot be saved.
        loader: the loader's own ``state_dict``, if it has one.
        workers_live: whether it has workers that wait for the next pass.
        checksums: of the last batch.
        waits: whether one more batch was fetched, and waits to be trained on.
        rng: the process's random states at the save. They are saved once for all readers, and added at a resume.
    """

    epoch: int = 0
    begun: bool = False
    batches: int = 0
    samples: int | None = None
    about: dict[str, Any] = field(default_factory=dict)
    began: dict[str, Any] | None = None
    first: dict[str, Any] | None = None
    held: dict[str, Any] = field(default_factory=dict)
    of_files: bool = False
    unsaved: list[str] = field(default_factory=list)
    loader: Any = None
    workers_live: bool = False
    checksums: dict[str, list[int]] = field(default_factory=dict)
    waits: bool = False
    rng: dict[str, Any] | None = None

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> ReaderState:
        """From what `state_dict` gave; fields that it does not have get their defaults."""
        return cls(**{each.name: saved[each.name] for each in fields(cls) if each.name in saved})

    @classmethod
    def at(cls, loader: Any, epoch: int, batches: int) -> ReaderState:
        """``batches`` batches into the pass ``epoch`` over ``loader``, of which nothing else is known."""
        state, order = cls(epoch, batches > 0, batches), order_of(loader)
        state.samples = None if order is None else state.position_in(order)
        return state

    def state_dict(self) -> dict[str, Any]:
        """The fields that are saved, by name."""
        return {name: value for name, value in vars(self).items() if name != 'rng'}

    def position_in(self, order: Order) -> int:
        """How many samples of ``order`` are consumed; where that was not saved, from the number of batches."""
        return self.batches * order.batch_size * order.sampler.world_size if self.samples is None else self.samples

    def begin_anew(self) -> None:
        """Forget the open pass: it begins again."""
        self.begun, self.batches, self.samples = False, 0, 0
