"""A checkpoint to hand on: the weights, what is needed to build the model, and the file's hash in its name."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from runnerkit.checkpoint import _load_checkpoint, ema_name, find_checkpoint
from runnerkit.checkpoint.atomic import save_with_checksums, write_atomically
from runnerkit.checkpoint.plain import to_plain
from runnerkit.checkpoint.schemes import HASH_IN_NAME
from runnerkit.checkpoint.state_dict import weights_to_cpu
from runnerkit.config import Config
from runnerkit.config.settings import read_literals
from runnerkit.fileio.paths import local_target
from runnerkit.flow.use.load import Trained, check_which, warn_if_not_finite, weights_of, without_places

#: What a meta says about the run and its machine. Without the counts, a published file is not resumed by mistake.
RUN_STATE = ('env_info', 'host_name', 'hook_msgs', 'epoch', 'iter')

EXTENSIONS = ('.pth', '.pt')


def publish(source: str | os.PathLike[str], out: str | os.PathLike[str], which: str = 'best') -> Path:
    """Write the weights of a checkpoint to a file to hand on, as MMCV's ``publish_model.py`` does.

    Of the meta, what describes the model is kept, its config and its classes above all, so that `load_model` takes the
    file; the optimizer and the state of the run are left out. Of averaged weights (`EMAHook`), the averages are
    written. No code is executed, neither of the checkpoint nor of a work dir.

    Args:
        source: a work dir; or a checkpoint, by its path or URL.
        out: ``models/lenet.pth`` becomes ``models/lenet-1a2b3c4d.pth``, with the first digits of the SHA-256 of the
            file, which loaders of URLs check.
        which: of a work dir, the ``'best'`` checkpoint (the latest if there is no best one), or the ``'latest'``.

    Returns:
        The path of the file.

    Raises:
        FileNotFoundError: there is no such checkpoint.
        OSError: writing failed.
        ValueError: the checkpoint is damaged, could run code, or holds no weights; or ``out`` is no local
            ``.pth`` file.
    """
    place = check_published_path(os.fspath(out))
    check_which(which)
    path = find_checkpoint(source, best=which == 'best')
    content = _load_checkpoint(path, 'cpu')
    held = content.get('state_dict', content) if isinstance(content, Mapping) else None
    if not isinstance(held, Mapping) or not any(isinstance(value, Tensor) for value in held.values()):
        raise ValueError(f'{path} holds no weights: a checkpoint is a dict of tensors by name, maybe under state_dict')
    if not all(isinstance(name, str) for name in held):
        raise ValueError(f'{path} holds weights under names that are no texts, which no model has')
    meta = content['meta'] if isinstance(content.get('meta'), Mapping) else {}
    try:
        cfg = Config(read_literals(str(meta.get('config', ''))))
    except (ValueError, KeyError):  # it is not data alone
        cfg = Config({})
    trained = Trained(path, {'state_dict': held, 'meta': meta}, cfg)
    weights = weights_of(trained)
    warn_if_not_finite(trained)
    for name in [ema_name(name) for name in weights]:
        weights.pop(name, None)
    kept = {key: without_places(value) for key, value in meta.items() if key not in RUN_STATE}
    published = {
        'meta': to_plain(kept, 'meta'),
        'state_dict': to_plain(weights_to_cpu(weights), 'state_dict'),
    }
    buffer = io.BytesIO()
    save_with_checksums(published, buffer)
    target = place.with_name(with_hash(place, hashlib.sha256(buffer.getvalue()).hexdigest()))
    write_atomically(target, buffer.getvalue())
    return target


def check_published_path(out: str) -> Path:
    """The path of a published file before its hash is added."""
    path = local_target(out)
    if not path.stem.strip('.') or path.name in EXTENSIONS:
        raise ValueError(f'a checkpoint is published under a name, such as lenet.pth, but got {out!r}')
    if path.suffix not in ('', *EXTENSIONS):
        raise ValueError(
            f'a checkpoint is published as {" or ".join(EXTENSIONS)}, but not as {out}; other formats: '
            f'runnerkit export … --out {path.name}'
        )
    return path


def with_hash(path: Path, digest: str) -> str:
    """The file's name with the first 8 digits of its hash, or as many as it takes not to look like a date."""
    names = (f'{path.stem}-{digest[:count]}{path.suffix or EXTENSIONS[0]}' for count in range(8, len(digest)))
    return next(name for name in names if HASH_IN_NAME.search(name))
