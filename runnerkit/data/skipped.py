"""Entering a loader behind its first batches: their indices are drawn and thrown away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from torch.utils.data import Sampler

from runnerkit.data.loader_state import LoaderState, same_state
from runnerkit.data.reader_state import ReaderState
from runnerkit.utils.seed import rng_state


class SkippedSampler(Sampler[Any]):
    """A sampler or batch sampler without its first items.

    Args:
        sampler: whose items these are.
        start: how many to leave out.
        after_first: called when the first one is drawn.
    """

    def __init__(self, sampler: Iterable[Any], start: int, after_first: Callable[[], None] = lambda: None) -> None:
        self.sampler = sampler
        self.start = start
        self.after_first = after_first
        self._items: Iterator[Any] = iter(())
        self._is_entered = False

    def __iter__(self) -> Iterator[Any]:
        self._items = iter(self.sampler)
        self._is_entered = False
        return self

    def __next__(self) -> Any:
        return next(self.enter())

    def enter(self) -> Iterator[Any]:
        """Draw and leave out the first items, unless that is done; returns an iterator over the others.

        A loader draws its workers' seed before the first index, so that this comes after ``iter(loader)``; but before
        the first batch is loaded, so that a caller can then put global generators where they belong.
        """
        if not self._is_entered:
            self._is_entered = True
            for number, _ in enumerate(islice(self._items, self.start)):
                if number == 0:
                    self.after_first()
        return self._items


class DrawCheck:
    """Finds the random generators that advance while batches are left out.

    An order that is drawn at once, or from its own generator, is the same when it is drawn again. One that is
    drawn bit by bit from a stream that the training draws from, too, is not: the stream then has moved, and not to
    where it was when the state was saved.
    """

    def __init__(self, held: LoaderState) -> None:
        self._held = held
        self._before: dict[str, Any] | None = None

    def start(self) -> None:
        """The first batch is drawn."""
        self._before = self._streams()

    def moved_elsewhere(self, state: ReaderState) -> list[str]:
        """What has moved on since `start`, and is not what it was when ``state`` was saved."""
        if self._before is None:
            return []
        now, then = self._streams(), {} if state.rng is None else _streams_of(state.rng, state.held)
        moved = [place for place, each in now.items() if not same_state(each, self._before.get(place))]
        return [place for place in moved if place not in then or not same_state(now[place], then[place])]

    def _streams(self) -> dict[str, Any]:
        return _streams_of(rng_state(), self._held.states())


def _streams_of(rng: Mapping[str, Any], held: Mapping[str, Any]) -> dict[str, Any]:
    own = {place: each for place, each in held.items() if 'generator' in each}
    return {**{f"the process's generator of {name}": each for name, each in rng.items()}, **own}
