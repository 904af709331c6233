"""Writing a checkpoint beside the training, from a copy of the state in memory that is kept from save to save."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from typing import Any

import torch
from torch import Tensor


class AsyncWriter:
    """Writes checkpoints in a thread of its own, one at a time.

    The caller waits only while the state is copied, into memory that the copy before left: the first one allocates it,
    as much as the state has. The interpreter does not exit before a checkpoint that has been begun is written.
    """

    def __init__(self) -> None:
        self._copies = ReusedCopies()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix='checkpoint')
        self._running: Future[None] | None = None

    def start(self, checkpoint: dict[str, Any], write: Callable[[dict[str, Any]], None]) -> None:
        """Copy ``checkpoint``, and let ``write`` have the copy in the other thread; one that still runs is waited for.

        Args:
            checkpoint: dicts, lists and tuples of tensors and plain values; not changed.
            write: what puts it into a file.
        """
        self.wait()  # its copy lies where the new one is going to
        self._running = self._thread.submit(write, self._copies.of(checkpoint))

    @property
    def is_done(self) -> bool:
        """Whether nothing is being written."""
        return self._running is None or self._running.done()

    def wait(self) -> None:
        """Wait until what is being written is written.

        Raises:
            BaseException: what ``write`` raised; once.
        """
        if self._running is None:
            return
        error = self._running.exception()
        self._running = None
        if error is not None:
            raise error


class ReusedCopies:
    """Copies of nested tensors, each in the memory of the one before, which is then lost.

    Copied is memory, not one tensor after the other: those that share it (tied weights, views) do so in the copy, and
    in a file that is made of it.
    """

    def __init__(self) -> None:
        self._buffers: list[Tensor] = []

    def of(self, value: Any) -> Any:
        """``value`` with all its tensors copied to the CPU.

        Args:
            value: dicts, lists and tuples of tensors and anything else, which is left as it is.
        """
        round_ = _Round(self._buffers)
        copied = _mapped(value, round_.twin)
        round_.copy()
        self._buffers = list(round_.buffers.values())
        return copied


class _Round:
    """One copy: which buffer each piece of memory goes to."""

    def __init__(self, former: list[Tensor]) -> None:
        # By device, address and size: memory that is not torch's own may be known to it as several pieces.
        self.sources: dict[tuple[torch.device, int, int], Tensor] = {}
        self.buffers: dict[tuple[torch.device, int, int], Tensor] = {}
        self._free: defaultdict[tuple[int, bool], list[Tensor]] = defaultdict(list)
        for buffer in former:
            self._free[buffer.numel(), buffer.is_pinned()].append(buffer)

    def twin(self, tensor: Tensor) -> Tensor:
        """The tensor that will hold ``tensor``'s values after `copy`."""
        if not _is_ordinary(tensor):
            return tensor.detach().clone().requires_grad_(tensor.requires_grad)
        storage = tensor.untyped_storage()
        key = (storage.device, storage.data_ptr(), storage.nbytes())
        if key not in self.buffers:
            self.sources[key] = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
            self.buffers[key] = self._buffer(storage.nbytes(), pinned=storage.device.type == 'cuda')
        memory = self.buffers[key].untyped_storage()
        twin = torch.empty(0, dtype=tensor.dtype)
        return twin.set_(memory, tensor.storage_offset(), tensor.size(), tensor.stride())

    def copy(self) -> None:
        """Fill the buffers."""
        if self.sources:
            torch._foreach_copy_(list(self.buffers.values()), list(self.sources.values()), non_blocking=True)
        for device in {device for device, *_ in self.sources if device.type == 'cuda'}:
            torch.cuda.synchronize(device)

    def _buffer(self, size: int, pinned: bool) -> Tensor:
        free = self._free[size, pinned]
        return free.pop() if free else torch.empty(size, dtype=torch.uint8, pin_memory=pinned)


def _is_ordinary(tensor: Tensor) -> bool:
    """Whether ``tensor`` is nothing but a view of its memory, which is on the CPU or a CUDA device."""
    return (
        type(tensor) is Tensor
        and tensor.layout is torch.strided
        and tensor.device.type in ('cpu', 'cuda')
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.requires_grad)
        and tensor.untyped_storage().nbytes() > 0
    )


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """``value`` with ``change`` applied to the tensors in its dicts, lists and tuples."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        mapped = copy(value)  # with what hangs on it, such as a state dict's _metadata
        for key, item in value.items():
            mapped[key] = _mapped(item, change)
        return mapped
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(item, change) for item in value)
    return value
