"""Makes one file of a sharded checkpoint, and a sharded checkpoint of a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from runnerkit.checkpoint.atomic import is_checkpoint_folder, save_with_checksums, write_atomically
from runnerkit.checkpoint.loader import _load_checkpoint, find_checkpoint, load_whole
from runnerkit.checkpoint.names import ema_name, plain_names
from runnerkit.checkpoint.plain import plain_checkpoint
from runnerkit.fileio.paths import is_url, local_path, local_target
from runnerkit.utils.exceptions import WrongValue

#: Of a single file with everything, and of one with weights alone.
WHOLE, WEIGHTS = ('.pth', '.pt'), '.safetensors'


def convert_checkpoint(
    source: str | os.PathLike[str], out: str | os.PathLike[str], best: bool = False
) -> tuple[Path, str]:
    """Write a checkpoint in its other form: a sharded one as a file, a file as a sharded one.

    The whole checkpoint is in memory meanwhile. No process group is needed, and nothing in it is executed.
    """
    target = local_target(out)
    check_converted_path(target)
    path = find_checkpoint(source, best=best)
    if target.suffix == WEIGHTS:
        write_atomically(target, _as_safetensors(_raw_weights(_load_checkpoint(path, 'cpu'), path)))
        return target, 'weights'
    content = load_whole(path, 'cpu')
    if not is_url(path) and is_checkpoint_folder(local_path(path)):
        kind = 'file'
        write_atomically(target, partial(save_with_checksums, content))
    else:
        from runnerkit.checkpoint.folder import write_folder
        from runnerkit.checkpoint.shards import taken_apart

        kind = 'folder'
        if not isinstance(content, Mapping) or 'state_dict' not in content:
            content = {'meta': {}, 'state_dict': _raw_weights(content, path)}
        tensors, rest = taken_apart(content)
        write_folder(target, tensors, tensors, plain_checkpoint(rest))
    return target, kind if content.get('optimizer') else 'weights'


def check_converted_path(target: Path) -> None:
    """Check the place of a converted checkpoint before the work."""
    if target.suffix not in (*WHOLE, WEIGHTS):
        raise WrongValue(
            f'{target}: a checkpoint is converted to name.pth (all that resuming needs: a file of a folder, and a '
            f'folder of a file) or to name{WEIGHTS} (the weights alone); other formats: runnerkit export … --out '
            f'{target.name}'
        )
    if os.path.lexists(target):
        raise FileExistsError(f'{target} exists: delete it, or give another name')


def _raw_weights(content: Any, path: str) -> dict[str, Tensor]:
    values = content.get('state_dict', content) if isinstance(content, Mapping) else {}
    weights = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    if not weights:
        raise ValueError(f'{path} holds no weights: a checkpoint is a dict of tensors by name, maybe under state_dict')
    weights = plain_names(weights)
    raw = {ema_name(name) for name in weights}
    return {name: value for name, value in weights.items() if name not in raw}


def _as_safetensors(weights: Mapping[str, Tensor]) -> bytes:
    try:
        from safetensors.torch import save
    except ImportError as error:
        raise ImportError(f'{WEIGHTS} needs the package safetensors: pip install safetensors') from error
    # Tied weights share memory, which the format does not know.
    try:
        return save({name: value.detach().clone().contiguous() for name, value in weights.items()}, {'format': 'pt'})
    except UnicodeEncodeError as error:
        raise ValueError(f'{WEIGHTS} cannot hold the name {error.object!r} of a tensor: rename it') from error
