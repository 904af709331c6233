"""The attributes that the user of an experiment sets: which of them checkpoints hold, and which have changed."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer

from runnerkit.data.kinds import is_stateful
from runnerkit.data.loader_state import generator_state, is_generator, set_generator_state

_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic)
_CONTAINERS = (dict, list, tuple, set, deque)

#: Longer containers are data, not state.
_LONGEST = 10_000
_DEEPEST = 5


def stateful(attributes: Mapping[str, Any], saved: set[int]) -> Iterator[tuple[str, Any]]:
    """The objects with a state (``state_dict``, random generators) among ``attributes`` and in their lists and dicts,
    each once, by their places; without those whose ids are in ``saved``, which others save."""
    seen = set(saved)
    waiting = deque(attributes.items())
    while waiting:
        place, value = waiting.popleft()
        if id(value) in seen:
            continue
        if is_generator(value) or _has_own_state(value):
            seen.add(id(value))
            yield place, value
        elif isinstance(value, _CONTAINERS) and len(value) <= _LONGEST:
            seen.add(id(value))
            parts = value.items() if isinstance(value, dict) else enumerate(value)
            waiting.extend((f'{place}[{key!r}]', part) for key, part in parts if not isinstance(part, _PLAIN))


def state_of_object(value: Any) -> Any:
    """What a checkpoint holds of one of the objects that `stateful` gives."""
    return generator_state(value) if is_generator(value) else value.state_dict()


def load_state(value: Any, state: Any) -> None:
    """Restore what `state_of_object` returned."""
    if is_generator(value):
        set_generator_state(value, state)
    else:
        value.load_state_dict(state)


class Summaries:
    """What the attributes that checkpoints do not hold were like, as far as that is cheap to see.

    Args:
        attributes: by name.
        saved: the ids of objects that are saved.
    """

    def __init__(self, attributes: Mapping[str, Any], saved: set[int]) -> None:
        self._alive: list[Any] = []  # so that no later object gets the id of one of these
        self._saved = saved
        self._of = {name: self._summary(value) for name, value in attributes.items()}

    def changed(self, before: Summaries) -> list[str]:
        """The names of attributes that differ from ``before``."""
        return [name for name, now in self._of.items() if now is not None and now != before._of.get(name)]

    def _summary(self, value: Any, depth: int = 0) -> Any:
        """Something that differs if ``value`` does; None if it is saved or computed again."""
        if isinstance(value, _PLAIN):
            return type(value), repr(value)  # so that NaN equals itself
        if id(value) in self._saved or is_generator(value) or _has_own_state(value):
            return None
        self._alive.append(value)
        if isinstance(value, Tensor):  # with a grad_fn, it is a result of a step
            return None if value.grad_fn is not None or value.is_inference() else (id(value), value._version)
        if isinstance(value, np.ndarray):
            return id(value), zlib.crc32(value.tobytes())
        if isinstance(value, Iterator):
            return object()  # whether it has moved on cannot be seen
        if not isinstance(value, _CONTAINERS):
            numbers = {name: part for name, part in getattr(value, '__dict__', {}).items() if isinstance(part, _PLAIN)}
            return None if _is_ours(value) else (id(value), repr(numbers))
        if depth == _DEEPEST or len(value) > _LONGEST:
            return id(value), len(value)
        keys, parts = ([*map(repr, value)], value.values()) if isinstance(value, dict) else ([], value)
        return type(value), keys, [self._summary(part, depth + 1) for part in parts]


def _has_own_state(value: Any) -> bool:
    return is_stateful(value) and (isinstance(value, (nn.Module, Optimizer)) or not _is_ours(value))


def _is_ours(value: Any) -> bool:
    """Whether it is a loader or a hook of runnerkit, say, which is saved otherwise."""
    return type(value).__module__.startswith('runnerkit.')
