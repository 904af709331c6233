"""The content of a checkpoint."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from runnerkit.checkpoint.names import get_state_dict
from runnerkit.checkpoint.plain import plain_checkpoint
from runnerkit.checkpoint.store import Store
from runnerkit.parallel import unwrap
from runnerkit.parallel.dtensors import is_sharded
from runnerkit.version import __version__

#: Why one process writes no file of a sharded model.
NO_FILE = (
    'save_checkpoint writes what one process has, and each process has a part of this model (FSDP2): call '
    'runner.save() on every rank, or register a CheckpointHook, which does. runnerkit convert makes a single file of '
    'what they write'
)


def save_checkpoint(
    model: nn.Module,
    filename: str | os.PathLike[str],
    optimizer: Optimizer | Mapping[str, Optimizer] | None = None,
    meta: Mapping[str, Any] | None = None,
    file_client_args: dict[str, Any] | None = None,
    state: Mapping[str, Any] | None = None,
) -> None:
    """Write ``meta``, the model's weights and the optimizers' states, completely or not at all.

    Args:
        model: wrapped or not; the names in the file are the inner module's.
        filename: a local path, any URL that fsspec knows, or ``pavi://<folder>/<name>``.
        optimizer: one, or several by name.
        meta: plain values to store; version and time are added.
        file_client_args: for `runnerkit.fileio.FileClient`, such as ``dict(backend='petrel')``; by default the filename
            decides.
        state: what else a resume needs, stored under ``'runnerkit'``.

    Raises:
        NotSavedError: writing failed.
        RuntimeError: the model is sharded: this process does not have all of it.
        TypeError: ``meta`` is not a mapping, or something cannot be stored as tensors and plain values.
        ValueError: ``file_client_args`` is given for ``pavi://``.
    """
    if is_sharded(model):
        raise RuntimeError(NO_FILE)
    store, name = Store.of(filename, file_client_args)
    store.write(name, plain_checkpoint(raw_checkpoint(model, optimizer, meta, state, on_cpu=True)))


def raw_checkpoint(
    model: nn.Module,
    optimizer: Optimizer | Mapping[str, Optimizer] | None = None,
    meta: Mapping[str, Any] | None = None,
    state: Mapping[str, Any] | None = None,
    on_cpu: bool = False,
) -> dict[str, Any]:
    """What `save_checkpoint` writes, before it is made plain. The containers are new; the tensors are shared, but for
    weights that move to the CPU, so that loading them needs no GPU memory."""
    if meta is not None and not isinstance(meta, Mapping):
        raise TypeError(f'meta must be a dict or None, but got {type(meta)}')
    about = {**(meta or {}), 'runnerkit_version': __version__, 'time': time.asctime()}
    about.setdefault('mmcv_version', '1.7.2')  # old readers check this version of the format
    classes = getattr(unwrap(model), 'CLASSES', None)
    if classes is not None:
        about['CLASSES'] = classes
    weights: dict[str, Any] = get_state_dict(model)
    for name, value in weights.items() if on_cpu else ():
        weights[name] = value.cpu() if isinstance(value, Tensor) else value
    checkpoint: dict[str, Any] = {'meta': about, 'state_dict': weights}
    if isinstance(optimizer, Optimizer):
        checkpoint['optimizer'] = optimizer.state_dict()
    elif isinstance(optimizer, Mapping):
        checkpoint['optimizer'] = {name: each.state_dict() for name, each in optimizer.items()}
    if state is not None:
        checkpoint['runnerkit'] = state
    return checkpoint
