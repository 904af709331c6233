"""What may stand in a checkpoint: tensors and plain Python values, so that loading one never has to run code."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np
import torch

_SCALARS = (type(None), bool, int, float, complex, str, bytes, torch.Tensor, torch.dtype, torch.device, torch.Size)


def to_plain(value: Any, where: str) -> Any:
    """A copy of ``value`` made of tensors and plain Python values only; tensors are shared, not copied.

    numpy scalars become Python numbers, numpy arrays and ranges lists, mappings dicts, paths and enum members what they
    stand for.

    Args:
        value: what is to be stored.
        where: its place in the checkpoint, for the error, e.g. ``"meta['env_info']"``.

    Raises:
        TypeError: something in ``value`` could be stored only by pickling code that loading would have to run.
    """
    kind = type(value)
    if kind in _SCALARS or isinstance(value, torch.Tensor):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return to_plain(value.tolist(), where)
    if isinstance(value, OrderedDict):
        return OrderedDict((key, to_plain(item, f'{where}[{key!r}]')) for key, item in value.items())
    if isinstance(value, Mapping):
        return {to_plain(key, where): to_plain(item, f'{where}[{key!r}]') for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [to_plain(item, f'{where}[{i}]') for i, item in enumerate(value)]
        return (
            tuple(items) if isinstance(value, tuple) else set(items) if isinstance(value, (set, frozenset)) else items
        )
    if isinstance(value, range):
        return list(value)
    if isinstance(value, Enum):
        return to_plain(value.value, where)
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, (bool, int, float, str)):  # their subclasses
        return kind.__mro__[-2](value)
    raise TypeError(
        f'{where} holds a {kind.__module__}.{kind.__qualname__}, which a checkpoint cannot hold: give tensors, '
        'numbers, strings, lists, tuples, sets and dicts (a hook: in its state_dict)'
    )
