"""Vega's files and names: configs in its shape, and classes written for it::

    from runnerkit.compat.vega import Callback, ClassFactory, ClassType, MetricBase

The names are those of `runnerkit.compat.vega.names`, imported at their first use: reading a config needs no torch.
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith('__'):
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(import_module(f'{__name__}.names'), name)
