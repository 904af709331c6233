"""Which split of ``data`` a workflow entry is about, and what it does with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runnerkit.config.objects import is_mark
from runnerkit.utils.signatures import LOADER_FUNCTIONS

#: What the names of splits that are evaluated on begin with, and of those that are trained on.
EVALUATED, TRAINED = ('val', 'test'), ('train',)


def splits_in(data: Mapping[str, Any]) -> list[str]:
    """The keys of ``data`` that hold data sets."""
    return [key for key, value in data.items() if _holds_data(str(key), value)]


def split_of(mode: str, data: Mapping[str, Any]) -> str:
    """The split that the workflow's ``mode`` names; a mode that is no split's name trains on ``train``."""
    return mode if mode == 'val' or mode in splits_in(data) else 'train'


def mode_of(mode: str, data: Mapping[str, Any]) -> str:
    """What runs a workflow entry: ``'val'`` for a split ``val_…``, ``test`` or ``test_…``, ``'train'`` for one called
    ``train_…``, and a step of the model, or a method of the runner, for all other names."""
    if mode in splits_in(data):
        kind = mode.partition('_')[0]
        return 'val' if kind in EVALUATED else 'train' if kind in TRAINED else mode
    return mode


def validates(workflow: Any, data: Any) -> list[str]:
    """The modes of ``workflow``, which may be of any shape, that validate."""
    entries = workflow if isinstance(workflow, Sequence) and not isinstance(workflow, str) else []
    known = data if isinstance(data, Mapping) else {}
    modes = [entry[0] for entry in entries if isinstance(entry, (list, tuple)) and entry]
    return [mode for mode in modes if isinstance(mode, str) and mode_of(mode, known) == 'val']


def _holds_data(key: str, value: Any) -> bool:
    if key.endswith('_dataloader') or key in LOADER_FUNCTIONS:
        return False
    if isinstance(value, str):
        return is_mark(value)  # an object has been there
    return hasattr(value, '__getitem__') or hasattr(value, '__iter__')
