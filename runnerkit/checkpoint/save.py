"""Writing checkpoints."""

from __future__ import annotations

import io
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from runnerkit.checkpoint.files import point_latest, write_atomically
from runnerkit.checkpoint.names import get_state_dict
from runnerkit.checkpoint.plain import to_plain
from runnerkit.checkpoint.state_dict import weights_to_cpu
from runnerkit.fileio.backends import HardDiskBackend
from runnerkit.fileio.file_client import FileClient
from runnerkit.fileio.paths import is_url, local_path
from runnerkit.parallel import unwrap
from runnerkit.version import __version__


class NotSavedError(OSError):
    """A checkpoint could not be written: the disk is full, its folder is gone …. What was there before still is."""


def save_checkpoint(
    model: nn.Module,
    filename: str | os.PathLike[str],
    optimizer: Optimizer | Mapping[str, Optimizer] | None = None,
    meta: Mapping[str, Any] | None = None,
    file_client_args: dict[str, Any] | None = None,
    state: Mapping[str, Any] | None = None,
) -> None:
    """Write ``meta``, the model's weights and the optimizers' states, whole or not at all.

    Args:
        model: wrapped or not; the names in the file are the inner module's.
        filename: a local path, any URL that fsspec knows, or ``pavi://<folder>/<name>``.
        optimizer: one, or several by name.
        meta: anything plain that should be remembered; version and time are added.
        file_client_args: for `runnerkit.fileio.FileClient`, such as ``dict(backend='petrel')``; by default the filename
            says where it goes.
        state: what else resuming needs, stored under ``'runnerkit'``.

    Raises:
        NotSavedError: the storage could not take it.
        TypeError: ``meta`` is no mapping, or something cannot be stored as tensors and plain values.
        ValueError: ``file_client_args`` for a model cloud.
    """
    write_checkpoint(checkpoint_of(model, optimizer, meta, state), filename, file_client_args)


def checkpoint_of(
    model: nn.Module,
    optimizer: Optimizer | Mapping[str, Optimizer] | None = None,
    meta: Mapping[str, Any] | None = None,
    state: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What `save_checkpoint` writes: plain containers of its own, whose tensors are those that training goes on with.

    Args:
        model: as there, and so are the others.
        optimizer: one, or several by name.
        meta: anything plain that should be remembered.
        state: what else resuming needs.

    Raises:
        TypeError: ``meta`` is no mapping, or something cannot be stored as tensors and plain values.
    """
    if meta is not None and not isinstance(meta, Mapping):
        raise TypeError(f'meta must be a dict or None, but got {type(meta)}')
    about = {**(meta or {}), 'runnerkit_version': __version__, 'time': time.asctime()}
    about.setdefault('mmcv_version', '1.7.2')  # the version of the format, which old readers ask for
    classes = getattr(unwrap(model), 'CLASSES', None)
    if classes is not None:
        about['CLASSES'] = classes
    checkpoint: dict[str, Any] = {
        'meta': to_plain(about, 'meta'),
        'state_dict': to_plain(get_state_dict(model), 'state_dict'),
    }
    if isinstance(optimizer, Optimizer):
        checkpoint['optimizer'] = to_plain(optimizer.state_dict(), 'optimizer')
    elif isinstance(optimizer, Mapping):
        checkpoint['optimizer'] = {
            name: to_plain(each.state_dict(), f'optimizer[{name!r}]') for name, each in optimizer.items()
        }
    if state is not None:
        checkpoint['runnerkit'] = to_plain(state, 'runnerkit')
    return checkpoint


def write_checkpoint(
    checkpoint: Mapping[str, Any], filename: str | os.PathLike[str], file_client_args: dict[str, Any] | None = None
) -> None:
    """Write what `checkpoint_of` gave, whole or not at all.

    Args:
        checkpoint: what to write.
        filename: as in `save_checkpoint`.
        file_client_args: as there.

    Raises:
        NotSavedError: the storage could not take it.
        ValueError: ``file_client_args`` for a model cloud.
    """
    checkpoint = {**checkpoint, 'state_dict': weights_to_cpu(checkpoint['state_dict'])}
    filename = os.fspath(filename)
    if filename.startswith('pavi://'):
        if file_client_args is not None:
            raise ValueError(
                f'file_client_args should be "None" if filename starts with "pavi://", but got {file_client_args}'
            )
        _save_to_pavi(checkpoint, filename)
        return
    path = local_path(filename)
    client = FileClient.infer_client(file_client_args, path)
    if type(client.client) is HardDiskBackend and not is_url(path):
        with _telling(filename):
            write_atomically(path, lambda file: torch.save(checkpoint, file))
        return
    buffer = io.BytesIO()
    torch.save(checkpoint, buffer)
    with _telling(filename):
        try:
            client.put(buffer.getvalue(), filename)
        except Exception as error:  # every storage has errors of its own
            raise error if isinstance(error, OSError) else OSError(f'{type(error).__name__}: {error}') from error


def _save_to_pavi(checkpoint: Mapping[str, Any], filename: str) -> None:
    try:
        from pavi import exception, modelcloud  # type: ignore[import-not-found]
    except ImportError as error:
        raise ImportError('Please install pavi to save checkpoint to modelcloud: pip install pavi') from error
    folder, name = os.path.split(filename[len('pavi://') :])
    root = modelcloud.Folder()
    try:
        model = modelcloud.get(folder)
    except exception.NodeNotFoundError:
        model = root.create_training_model(folder)
    with tempfile.TemporaryDirectory() as temporary:
        path = os.path.join(temporary, name)
        torch.save(checkpoint, path)
        model.create_file(path, name=name)


def save_latest_link(filename: str) -> None:
    """Make ``latest.pth`` beside ``filename`` lead to it."""
    path = Path(filename)
    with _telling(filename):
        point_latest(path, path.with_name('latest.pth'))


@contextmanager
def _telling(filename: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NotSavedError(error.errno, error.strerror or str(error), filename) from error
