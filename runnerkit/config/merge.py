"""Merging a child config into its base, dict by dict."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from runnerkit.config.config_dict import ConfigDict, as_config, set_origin
from runnerkit.config.origin import OPTIONS, Origin, Place

#: If true in a child's dict, the dict replaces the base's instead of being merged into it.
DELETE_KEY = '_delete_'


def merge(child: dict[str, Any], base: dict[str, Any], allow_list_keys: bool = False) -> ConfigDict:
    """Merge ``child`` into a copy of ``base``, dict by dict. Neither is changed.

    Values that only one of them has are shared with the result, not copied.
    """
    merged = copy.copy(base) if isinstance(base, ConfigDict) else as_config(base)
    for key, value in child.items():
        if key != DELETE_KEY:
            laid = _over(value, base[key], key, allow_list_keys) if key in base else _without_marks(value)
            dict.__setitem__(merged, key, laid)  # not addict's own, which is slow
    ours, theirs = merged._origin_, child._origin_ if isinstance(child, ConfigDict) else None
    if ours and theirs:
        added = child.keys() - base.keys() if theirs.places[0].file == OPTIONS else ()
        set_origin(merged, ours.changed_by(theirs, child, added))
    else:
        set_origin(merged, ours or theirs)
    return merged


def _over(value: Any, below: Any, key: str, allow_list_keys: bool) -> Any:
    if not isinstance(value, dict) or value.get(DELETE_KEY) or (below is None and allow_list_keys):
        return _without_marks(value)
    if isinstance(below, dict):
        return merge(value, below, allow_list_keys)
    if allow_list_keys and isinstance(below, list | tuple):
        return _merge_items(value, below, key)
    origin = getattr(value, '_origin_', None)
    where = f' ({origin})' if isinstance(origin, Origin) else ''
    raise TypeError(
        f'{key}={value} in child config cannot inherit from base because {key} is a dict in the child config but is of '
        f'type {type(below)} in base config. You may set `{DELETE_KEY}=True` to ignore the base config.{where}'
    )


def _merge_items(items: dict[str, Any], below: list[Any] | tuple[Any, ...], key: str) -> list[Any] | tuple[Any, ...]:
    merged = list(below)
    for index, value in items.items():
        if not str(index).isdigit():
            raise TypeError(
                f'{key} is a {type(below).__name__}, so {key}.{index} names none of its items: '
                f'give an index from 0 to {len(below) - 1}, or the whole list'
            )
        if int(index) >= len(below):
            raise KeyError(f'Index {index} exceeds the length of {type(below).__name__} {key}={below}')
        merged[int(index)] = _over(value, below[int(index)], f'{key}.{index}', allow_list_keys=True)
    return tuple(merged) if isinstance(below, tuple) else merged


def _without_marks(value: Any) -> Any:
    """``value`` without `_delete_` keys, which are no longer needed: a copy, or itself if it has none."""
    if _has_marks(value):
        value = as_config(value)
        for part in _dicts_in(value):
            part.pop(DELETE_KEY, None)
    return value


def _has_marks(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if DELETE_KEY in value:
        return True
    for item in value.values():  # noqa: SIM110 (all dicts of every config pass here, and any() takes twice as long)
        if isinstance(item, dict) and _has_marks(item):
            return True
    return False


def _dicts_in(value: Any) -> Iterator[dict[Any, Any]]:
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from _dicts_in(item)


def nested_options(options: dict[str, Any]) -> ConfigDict:
    """Nested dicts from dotted keys: ``{'a.b': 1}`` becomes ``dict(a=dict(b=1))``."""
    tree = ConfigDict()
    for full_key, value in options.items():
        *path, last = full_key.split('.')
        level = tree
        for part in path:
            level = level.setdefault(part, ConfigDict())
            if not isinstance(level, dict):
                raise TypeError(
                    f'{full_key!r} cannot be set: {part!r} was given the value {level!r} in the same options'
                )
        level[last] = value
    return as_config(tree, Place(OPTIONS))
