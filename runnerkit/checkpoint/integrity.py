"""Whether a checkpoint file is intact, and of use."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch


def why_damaged(path: str | os.PathLike[str]) -> str | None:
    """Why the checkpoint file cannot be believed, or None if it is whole.

    `torch.save` stores a CRC-32 with every record, which `torch.load` never looks at: a flipped bit would be trained
    on. Old files that are no zip archives carry no checksums; they count as whole when torch can read them.
    """
    is_archive = False
    try:
        if Path(path).stat().st_size == 0:
            return 'it is empty'
        is_archive = zipfile.is_zipfile(path)
        if is_archive:
            with zipfile.ZipFile(path) as archive:
                bad = archive.testzip()
            if bad is not None:
                return f'the checksum of its record {bad!r} is wrong'
        # The table of contents carries no checksum: torch must find everything by it, too, without reading the tensors.
        torch.load(path, map_location='cpu', weights_only=True, mmap=is_archive)
    except Exception as error:  # a damaged file can fail in any way; every one of them is the answer here
        reason = f'{type(error).__name__}: {error}'
        if is_archive and 'Weights only' in reason:
            return None  # whole, with objects that are not loaded unless they are trusted
        return reason.splitlines()[0]
    return None


def training_state_problem(checkpoint: Any) -> str | None:
    """Why a run cannot be resumed from ``checkpoint``, what a file holds; None if it can."""
    meta = checkpoint.get('meta') if isinstance(checkpoint, Mapping) else None
    if not isinstance(meta, Mapping) or 'state_dict' not in checkpoint:
        return 'it holds no training state'
    for name in ('epoch', 'iter'):
        count = meta.get(name)
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 2**63:
            return f'meta[{name!r}] is {str(count)[:40]}, not a count'
    return None
