"""Differences of checkpoints written by MMCV 1.x."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any


def is_mmcv_file(checkpoint: Mapping[str, Any]) -> bool:
    """Whether MMCV wrote ``checkpoint``: there, iteration counts and averaged weights mean something else."""
    meta = checkpoint.get('meta')
    return not (isinstance(meta, Mapping) and 'runnerkit_version' in meta)


def gpus_of_run(meta: Mapping[str, Any]) -> int:
    """How many GPUs an MMCV run used, from ``gpu_ids`` in its config's text, which is not executed; 0 if unknown."""
    found = re.search(r'^gpu_ids = (.+)$', str(meta.get('config', '')), flags=re.MULTILINE)
    if not found:
        return 0
    text = found[1].strip()
    counted = re.fullmatch(r'range\((?:0, ?)?(\d+)\)', text)
    try:
        return int(counted[1]) if counted else len(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return 0
