"""Transforms in a row, built by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from runnerkit.data.builder import TRANSFORM_KEYS, TRANSFORMS
from runnerkit.registry import build_or_bind, find_function
from runnerkit.utils.suggest import nearest

#: Longer lists are no transforms but samples.
_MOST_TRANSFORMS = 100


@TRANSFORMS.register_module()
class Compose:
    """Applies transforms one after the other.

    Args:
        transforms: configs for TRANSFORMS, or functions that take a sample and return it, which may be named
            (``'my_data.py:flip'``). A transform that returns None gives the sample up: those after it are not called,
            and the result is None.

    Raises:
        TypeError: a transform is neither a config nor callable.
    """

    def __init__(self, transforms: Sequence[dict[str, Any] | Callable[[Any], Any] | str]) -> None:
        self.transforms: list[Callable[[Any], Any]] = []
        for transform in transforms:
            if isinstance(transform, dict):
                transform = build_or_bind(transform, TRANSFORMS)
            elif isinstance(transform, str) and '.py:' in transform:
                transform = find_function(transform, 'a transform')
            if not callable(transform):
                raise TypeError(
                    f'a transform must be a config (a dict with a type), callable or the name of a function, but got '
                    f'{type(transform).__name__}: {transform!r}'
                )
            self.transforms.append(transform)

    def __call__(self, sample: Any) -> Any:
        """Return what the last transform makes of ``sample``, or None if one of them gave it up."""
        for transform in self.transforms:
            sample = transform(sample)
            if sample is None:
                return None
        return sample

    def __repr__(self) -> str:
        lines = ''.join(f'\n    {transform}' for transform in self.transforms)
        return f'{type(self).__name__}({lines}\n)'


def build_what_is_left(dataset: Any, given: Sequence[Any]) -> None:
    """Build the transforms that ``dataset`` still holds as configs: those of ``given``, and those inside of them.

    A class that builds them itself leaves none. They are looked for in the attributes of the data set, of its
    transforms and of the data set that it is a part of. A name that is no transform's is left to the class.
    """
    _build_in(dataset, [config['type'] for config in _configs_in(given)], {}, set())


def _configs_in(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield from [value] if 'type' in value else []
        value = list(value.values())
    for each in value if isinstance(value, list | tuple) else ():
        yield from _configs_in(each)


def _build_in(holder: Any, types: Sequence[Any], built: dict[int, tuple[Any, Any]], seen: set[int]) -> None:
    """Replace the configs in the attributes of ``holder``; what two of them share, they share afterwards."""
    if id(holder) in seen or isinstance(holder, type) or inspect.isroutine(holder):
        return
    seen.add(id(holder))
    attributes = dict(getattr(holder, '__dict__', {}))
    usual = [name for name in attributes if name.strip('_') in TRANSFORM_KEYS]
    for name, value in attributes.items():
        parts = value if isinstance(value, list | tuple) else [value]
        if len(parts) > _MOST_TRANSFORMS:
            continue
        # Beside the usual names, another one is that of a copy which the class keeps.
        new = [_built(part, types, built) for part in parts] if not usual or name in usual else parts
        if any(one is not other for one, other in zip(new, parts, strict=True)):
            setattr(holder, name, type(value)(new) if isinstance(value, list | tuple) else new[0])
        for part in new:
            if callable(part) or name == 'dataset':
                _build_in(part, types, built, seen)


def _built(value: Any, types: Sequence[Any], built: dict[int, tuple[Any, Any]]) -> Any:
    named = value.get('type') if isinstance(value, dict) else None
    if named is None or named not in types:
        return value
    is_known = not isinstance(named, str) or '.' in named or TRANSFORMS.get(named) is not None
    if not is_known and not nearest(named, TRANSFORMS.names()):
        return value
    if id(value) not in built:  # with the config, so that no other one gets its id
        built[id(value)] = value, build_or_bind(value, TRANSFORMS)
    return built[id(value)][1]
