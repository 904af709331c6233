"""Bringing batches to a GPU while it is busy with the one before."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar

import torch

from runnerkit.parallel import to_device

T = TypeVar('T')


class SideStream:
    """Copies to a GPU on a separate stream, without waiting for anything on the host.

    A copy begins when all that the current stream was given before `start` is done. That alone makes memory safe to
    use again: it comes from batches which Python let go before, and whatever read them was given to the current stream
    before that.

    Args:
        device: a GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)

    def start(self, batch: Any) -> tuple[Any, torch.cuda.Event]:
        """Begin to copy what is not on the device yet; pageable memory is waited for, pinned memory is not."""
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            return to_device(batch, self.device), self.stream.record_event()

    def finish(self, started: tuple[Any, torch.cuda.Event]) -> Any:
        """The batch; the current stream waits for this copy, and for no later one."""
        batch, copied = started
        torch.cuda.current_stream(self.device).wait_event(copied)
        return batch


@cache
def side_stream(device: torch.device) -> SideStream:
    """The one for ``device``: each stream has its own memory pool, and one is enough."""
    if not torch.cuda.is_available():
        raise ValueError(f"prefetch_to is '{device}', but no such device was found: leave it out")
    return SideStream(device)


def prefetched(batches: Iterator[Any], device: torch.device) -> Iterator[Any]:
    """``batches`` on ``device``, each drawn and on its way before the one before is handed out."""
    if device.type != 'cuda':
        return batches
    copies = side_stream(device)
    return map(copies.finish, one_ahead(map(copies.start, batches)))


def one_ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items, each drawn before the one before is handed out; an error in drawing one is raised in its
    place."""
    failure: Exception | None = None
    drawn: list[T] = []
    while True:
        try:
            drawn.append(next(items))
        except StopIteration:
            break
        except Exception as error:
            failure = error
            break
        if len(drawn) == 2:
            yield drawn.pop(0)
    while drawn:
        yield drawn.pop()
    if failure is not None:
        raise failure
