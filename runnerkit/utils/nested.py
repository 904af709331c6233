"""The values in nested dicts and lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def values_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value in nested mappings, lists and tuples, after ``path`` with its keys and indices.

    An empty container is a value, too. Arrays, tensors and sets are not looked into.
    """
    if not isinstance(value, Mapping | list | tuple) or not value:
        yield path, value
        return
    for key, each in value.items() if isinstance(value, Mapping) else enumerate(value):
        yield from values_in(each, (*path, key))
