"""Writes checkpoints in a background thread, from a copy of the state whose memory is reused from save to save."""

from __future__ import annotations

import logging
import os
import weakref
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger('runnerkit')


class AsyncWriter:
    """Writes checkpoints in a background thread, one at a time.

    The caller waits only while the state is copied. The first save allocates memory for the copy, as much as the state
    has; later ones reuse it. The interpreter does not exit before a started checkpoint is written.
    """

    def __init__(self) -> None:
        self._copies = ReusedCopies()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix='checkpoint')
        self._running: Future[None] | None = None
        self._original: Any = None
        self._unheard: Any = None

    def start(self, checkpoint: Any, write: Callable[[Any], None]) -> None:
        """Copy ``checkpoint`` and call ``write`` with the copy in the background, after any earlier write has ended."""
        self.wait()  # the new copy overwrites the old one
        copied, failure = self._copies.of(checkpoint), list[str]()

        def run() -> None:
            try:
                write(copied)
            except BaseException as error:
                failure.append(str(error))  # without its traceback, which would keep all that has led here
                raise

        self._unheard = weakref.finalize(self, _log_failure, failure, os.getpid())
        self._running = self._thread.submit(run)
        # To let go of thousands of tensors while the thread has the interpreter takes tens of milliseconds.
        self._original = checkpoint

    @property
    def is_done(self) -> bool:
        """Whether nothing is being written."""
        return self._running is None or self._running.done()

    def wait(self) -> None:
        """Wait for the current write to end."""
        if self._running is None:
            return
        error = self._running.exception()
        self._running = self._original = None
        self._unheard.detach()
        if error is not None:
            raise error


def _log_failure(failure: list[str], process: int) -> None:
    """Log the failure of a write whose end was not waited for."""
    for text in failure if os.getpid() == process else ():
        logger.error(
            'a checkpoint could not be written in the background: %s. After a save outside a run, call '
            'runner.finish_saving(), which raises this',
            text,
        )


class ReusedCopies:
    """Copies nested tensors to the CPU; each copy overwrites the one before.

    Whole storages are copied, not single tensors: tensors that share memory (tied weights, views) share it in the copy
    too, and in the file written from it.
    """

    def __init__(self) -> None:
        self._buffers: list[Tensor] = []

    def of(self, value: Any) -> Any:
        """``value`` with all its tensors copied to the CPU."""
        round_ = _Round(self._buffers)
        copied = _mapped(value, round_.twin)
        round_.copy()
        self._buffers = list(round_.buffers.values())
        return copied


class _Round:
    """One copy: which buffer each storage goes to."""

    def __init__(self, former: list[Tensor]) -> None:
        # By device, address and size: torch may have several storages for memory that it did not allocate itself.
        self.sources: dict[tuple[torch.device, int, int], Tensor] = {}
        self.buffers: dict[tuple[torch.device, int, int], Tensor] = {}
        self._free: defaultdict[tuple[int, bool], list[Tensor]] = defaultdict(list)
        for buffer in former:
            self._free[buffer.numel(), buffer.is_pinned()].append(buffer)

    def twin(self, tensor: Tensor) -> Tensor:
        """The tensor that will hold the values of ``tensor`` after `copy`."""
        if not _is_ordinary(tensor):
            return tensor.detach().clone().requires_grad_(tensor.requires_grad)
        storage = tensor.untyped_storage()
        key = (storage.device, storage.data_ptr(), storage.nbytes())
        if key not in self.buffers:
            self.sources[key] = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
            pinned, size = storage.device.type == 'cuda', storage.nbytes()
            free = self._free[size, pinned]
            self.buffers[key] = free.pop() if free else torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        memory = self.buffers[key].untyped_storage()
        twin = torch.empty(0, dtype=tensor.dtype)
        return twin.set_(memory, tensor.storage_offset(), tensor.size(), tensor.stride())

    def copy(self) -> None:
        """Fill the buffers."""
        if self.sources:
            torch._foreach_copy_(list(self.buffers.values()), list(self.sources.values()), non_blocking=True)
        for device in {device for device, *_ in self.sources if device.type == 'cuda'}:
            torch.cuda.synchronize(device)


def _is_ordinary(tensor: Tensor) -> bool:
    """Whether ``tensor`` is a plain view of memory on the CPU or a CUDA device."""
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
        mapped = copy(value)  # with its attributes, such as a state dict's _metadata
        for key, item in value.items():
            mapped[key] = _mapped(item, change)
        return mapped
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(item, change) for item in value)
    return value
