"""The dicts that a config consists of: items are attributes too, and each knows where it was written."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import Any

from addict import Dict

from runnerkit.config.origin import Origin, Place, SourceLines, parts_of
from runnerkit.utils.suggest import did_you_mean


class ConfigDict(Dict):
    """A dict whose items are attributes too: ``cfg.optimizer.lr``. A missing attribute is an error.

    Where it was written is kept beside the items, in ``_origin_`` (None if not known), also in copies and pickles.
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
        # Python and its libraries ask for many a `__name__`; only people misspell.
        hint = '' if name.startswith('__') else did_you_mean(name, [key for key in self if isinstance(key, str)])
        raise AttributeError(f'{message}; {hint}' if hint else message)

    def __copy__(self) -> ConfigDict:
        return _filled(type(self)(), self, self._origin_)

    def __deepcopy__(self, memo: dict[int, Any]) -> ConfigDict:
        fresh = type(self)()
        memo[id(self)] = fresh
        return _filled(fresh, {key: copy.deepcopy(value, memo) for key, value in self.items()}, self._origin_)

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


def _filled(fresh: ConfigDict, items: dict[Any, Any], origin: Origin | None) -> ConfigDict:
    dict.update(fresh, items)
    set_origin(fresh, origin)
    return fresh


def as_config(value: Any, place: Place | None = None) -> Any:
    """``value`` with every dict in it made a ConfigDict, in new containers; those that know their origin keep it.

    Args:
        value: anything.
        place: where those dicts were written that do not know it.
    """
    if isinstance(value, dict):
        known = getattr(value, '_origin_', None) if isinstance(value, ConfigDict) else None
        items = {key: as_config(item, place) for key, item in value.items()}
        return _filled(ConfigDict(), items, known or (Origin((place,)) if place else None))
    if type(value) in (list, tuple):
        return type(value)(as_config(item, place) for item in value)
    return value


def as_written_config(values: dict[str, Any], file: str, source: SourceLines) -> ConfigDict:
    """The values of a Python config file as a ConfigDict that knows the lines of its parts."""
    items = {key: _located(value, source.top.get(key), source, (file, None)) for key, value in values.items()}
    keys = {key: (file, node.lineno) for key, node in source.top.items() if key in items}
    return _filled(ConfigDict(), items, Origin(((file, None),), keys))


def _located(value: Any, node: ast.expr | None, source: SourceLines, place: Place) -> Any:
    """`as_config` of a value that the expression ``node`` gave; ``place`` holds where the expression is not known."""
    if not isinstance(value, dict) and type(value) not in (list, tuple):
        return value
    node = source.definition(node)
    parts = parts_of(node)
    if node is not None:
        place = (place[0], node.lineno)
    if isinstance(value, dict):
        items = {key: _located(item, parts.get(key), source, place) for key, item in value.items()}
        keys = {key: (place[0], part.lineno) for key, part in parts.items()}
        return _filled(ConfigDict(), items, Origin((place,), keys))
    return type(value)(_located(item, parts.get(index), source, place) for index, item in enumerate(value))


def walk(config: dict[Any, Any], prefix: str = '') -> Iterator[tuple[str, Any]]:
    """Every value that is no dict, with its dotted key."""
    for key, value in config.items():
        if isinstance(value, dict):
            yield from walk(value, f'{prefix}{key}.')
        else:
            yield f'{prefix}{key}', value
