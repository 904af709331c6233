"""Endless loaders, as runners that count iterations read them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from itertools import count
from typing import Any

from runnerkit.data.kinds import describe_loader, is_unbounded
from runnerkit.data.rank_sharing import check_pass, may_have_unequal_lengths, next_in_step
from runnerkit.data.reader import Reader
from runnerkit.utils.waiting import WaitEnded

_END = object()


class IterLoader(Reader):
    """An endless loader: when a pass is over, the next epoch begins.

    Args:
        dataloader: what is passed over again and again.
    """

    def __init__(self, dataloader: Any) -> None:
        super().__init__(dataloader)
        self.number = next(numbers)
        self._may_differ = False  # whether ranks may get unequally many batches
        _iter_loaders.append(weakref.ref(self))

    def __next__(self) -> Any:
        batches = self._iterator
        if batches is None:
            batches = self.batches(self.epoch)
        if not self.given:
            self._may_differ = may_have_unequal_lengths(self._dataloader)
            if not self.left_out and self._first is None:  # else a resume has fetched it under these states
                self._first = self.states_of_order()
        # The usual case saves a call in each iteration.
        batch = self._next_of(batches) if self._may_differ else next(batches, _END)
        if batch is _END:
            if is_unbounded(self._dataloader):
                raise WaitEnded('the stream has ended')
            check_pass(self._dataloader, self.position)
            batches = self.begin(self.epoch + 1)
            self._first = self.states_of_order()
            batch = self._next_of(batches)
            if batch is _END:
                raise ValueError(
                    f'{describe_loader(self._dataloader)} gives no batches: its data set is empty, smaller than one '
                    'full batch (drop_last), or an iterator that was read to its end: then let __iter__ begin again'
                )
        self.given += 1
        return batch

    def _next_of(self, batches: Iterator[Any]) -> Any:
        """The next batch; the end if this rank, or another one that waits for it, has none left."""
        if not self._may_differ:
            return next(batches, _END)
        return next_in_step(self._dataloader, batches, self.given, _END)

    def __len__(self) -> int:
        return len(self._dataloader)

    @property
    def position(self) -> int:
        """How many batches of the running pass were given out."""
        return self.left_out + self.given

    def start(self) -> None:
        """Begin the first pass now, or enter the one that was open: what that draws from random generators comes
        before the first step, as in MMCV."""
        if self._iterator is None:
            self.batches(self.epoch)


#: Tells what was made before what.
numbers = count()

#: All that there are, in the order in which they were made.
_iter_loaders: list[weakref.ref[IterLoader]] = []


def new_iter_loaders(since: int) -> list[IterLoader]:
    """Those that nothing was read from yet, in the order in which they were made: a runner whose own ``run`` makes its
    loaders passes them to no method of ours.

    Args:
        since: the number behind which they were made.
    """
    _iter_loaders[:] = [each for each in _iter_loaders if each() is not None]
    living = (each() for each in _iter_loaders)
    return [each for each in living if each is not None and not each.is_open and each.number > since]
