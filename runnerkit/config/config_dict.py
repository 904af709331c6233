"""The dicts of a config: items are also attributes, and each dict knows where it was written."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from numbers import Integral
from typing import Any

from addict import Dict

from runnerkit.config.origin import Origin, Place
from runnerkit.utils.suggest import did_you_mean

#: How deeply dicts, lists and tuples may be nested, so that a broken file causes an error that names it, not a crash.
MAX_DEPTH = 100

#: The message about values that are nested deeper; the caller adds the file.
TOO_DEEP = f'values may be nested {MAX_DEPTH} levels deep, but these are nested deeper, or contain themselves'

#: The types of values that stand in a config as they are; numpy's whole numbers become Python's.
_ATOMS = (str, int, float, type(None))


class ConfigDict(Dict):
    """A dict whose items are also attributes: ``cfg.optimizer.lr``. A missing attribute is an error.

    ``_origin_`` tells where it was written (None if unknown); copies and pickles keep it.
    """

    _origin_: Origin | None = None

    def __missing__(self, name: Any) -> Any:
        raise KeyError(name)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            pass
        message = f"'{type(self).__name__}' object has no attribute '{name}'"
        # Python and libraries look up many a `__name__`, for which a suggestion would be wasted.
        hint = '' if name.startswith('__') else did_you_mean(name, [key for key in self if isinstance(key, str)])
        raise AttributeError(f'{message}; {hint}' if hint else message)

    def __copy__(self) -> ConfigDict:
        return _with_items(type(self)(), self, self._origin_)

    def __deepcopy__(self, memo: dict[int, Any]) -> ConfigDict:
        fresh = type(self)()
        memo[id(self)] = fresh
        return _with_items(fresh, {key: copy.deepcopy(value, memo) for key, value in self.items()}, self._origin_)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (), {'_origin_': self._origin_}, None, iter(self.items())

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        object.__setattr__(self, '_origin_', state['_origin_'])

    def __or__(self, other: Any) -> Any:
        return self._union(self, other)

    def __ror__(self, other: Any) -> Any:
        return self._union(other, self)

    def _union(self, first: Any, second: Any) -> Any:
        if not (isinstance(first, dict) and isinstance(second, dict)):
            return NotImplemented
        merged = type(self)(first)
        merged.update(second)
        return merged


def set_origin(config: ConfigDict, origin: Origin | None) -> None:
    """Note where ``config`` was written."""
    object.__setattr__(config, '_origin_', origin)


def _with_items(fresh: ConfigDict, items: dict[Any, Any], origin: Origin | None) -> ConfigDict:
    dict.update(fresh, items)
    set_origin(fresh, origin)
    return fresh


def as_config(value: Any, place: Place | None = None, depth: int = 1) -> Any:
    """A copy of ``value`` in which every dict is a ConfigDict; known origins are kept."""
    if depth > MAX_DEPTH:
        raise ValueError(f'{place.file}: {TOO_DEEP}' if place else TOO_DEEP)
    if isinstance(value, dict):
        known = value._origin_ if isinstance(value, ConfigDict) else None
        # Skips addict's constructor, which is slow: this runs for each dict of a config.
        fresh: ConfigDict = ConfigDict.__new__(ConfigDict)
        dict.update(fresh, value)
        for key, item in value.items():
            if not isinstance(item, _ATOMS):
                dict.__setitem__(fresh, key, as_config(item, place and place.below(key), depth + 1))
        origin = known or (Origin((place,)) if place else None)
        if origin is not None:
            set_origin(fresh, origin)
        return fresh
    if type(value) in (list, tuple):
        return type(value)(
            [
                item if isinstance(item, _ATOMS) else as_config(item, place and place.below(index), depth + 1)
                for index, item in enumerate(value)
            ]
        )
    return int(value) if isinstance(value, Integral) and not isinstance(value, _ATOMS) else value


def check_depth(value: Any) -> None:
    """Check that ``value`` is within `MAX_DEPTH`."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            item
            for part in level
            if isinstance(part, (dict, list, tuple))
            for item in (part.values() if isinstance(part, dict) else part)
        ]
    if level:
        raise ValueError(TOO_DEEP)


def walk(config: dict[Any, Any], prefix: str = '') -> Iterator[tuple[str, Any]]:
    """Every value that is not a dict, with its dotted key."""
    for key, value in config.items():
        if isinstance(value, dict):
            yield from walk(value, f'{prefix}{key}.')
        else:
            yield f'{prefix}{key}', value
