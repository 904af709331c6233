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
        about: what a resumed run compares of the loader, see `runnerkit.data.kinds.loader_facts`; empty if unknown.
        epoch: the running pass, from 0.
        begun: whether a pass was open.
        batches: of the open pass, how many batches this rank has consumed.
        samples: of its order, how many samples all ranks together have consumed; None if that is not known.
        last: of these, how many before the last batch; None if that is not known, or there is none.
        began: all states at the beginning of the open pass; None where its order does not follow from them.
        first: all states before its first batch, if that came later.
        held: the states of the loader's parts, by place, see `runnerkit.data.loader_state.LoaderState`.
        unsaved: the places of attributes that have changed and are not saved.
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
    last: int | None = None
    about: dict[str, Any] = field(default_factory=dict)
    began: dict[str, Any] | None = None
    first: dict[str, Any] | None = None
    held: dict[str, Any] = field(default_factory=dict)
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

    def last_in(self, order: Order) -> int:
        """How many samples of ``order`` were consumed before the last batch; where that was not saved, from the number
        of batches."""
        return (self.batches - 1) * order.batch_size * order.sampler.world_size if self.last is None else self.last

    def begin_anew(self) -> None:
        """Forget the open pass: it begins again."""
        self.begun, self.batches, self.samples, self.last = False, 0, 0, None
