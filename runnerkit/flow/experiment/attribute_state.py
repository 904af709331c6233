"""The state of the attributes that the user of an experiment sets, for checkpoints."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice, zip_longest
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from runnerkit.data.checksum import batch_checksums
from runnerkit.data.generator_state import generator_state, set_generator_state
from runnerkit.data.walk import is_generator, is_stateful

_SCALARS = (type(None), bool, int, float, str)
_LISTS = (list, tuple, deque, set)

#: Longer lists are data, not state.
_LONGEST = 10_000

#: In deeper ones nothing is looked at.
_DEEPEST = 20


class AttributeState:
    """The state of the attributes of an experiment.

    Objects with a ``state_dict`` and random generators are saved always, also in lists and dicts. Numbers, texts,
    tensors, and lists and dicts of these are saved if they have changed since the run began: the program sets
    the others, and may have changed when the run resumes.

    Args:
        attributes: the user's, as they are when the run begins.
    """

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self._at_first = {name: _mark(value) for name, value in attributes.items()}

    def state_dict(self, attributes: Mapping[str, Any], saved: set[int]) -> dict[str, Any]:
        """What a checkpoint has to hold of ``attributes``.

        Args:
            attributes: as they are now.
            saved: the ids of objects that are saved otherwise.
        """
        objects = {place: state_of(each) for place, each in stateful(attributes, saved)}
        changed = {name: attributes[name] for name, mark in self._changed(attributes) if _is_saved(mark)}
        return {'attributes': objects, 'values': {name: _copy(value) for name, value in changed.items()}}

    def unsaved(self, attributes: Mapping[str, Any]) -> list[str]:
        """The names of attributes that have changed since the run began, and that are not part of `state_dict`."""
        return [name for name, mark in self._changed(attributes) if not _is_saved(mark)]

    def _changed(self, attributes: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for name, value in attributes.items():
            mark = _mark(value)
            if mark is not None and not _same(mark, self._at_first.get(name)):
                yield name, mark


def stateful(attributes: Mapping[str, Any], saved: set[int]) -> Iterator[tuple[str, Any]]:
    """The objects among ``attributes`` that have a state, also those in lists and dicts, each once, by their places.

    Args:
        attributes: by name.
        saved: the ids of those to leave out.
    """
    seen = set(saved)
    waiting = deque(attributes.items())
    while waiting:
        place, value = waiting.popleft()
        if id(value) in seen:
            continue
        if is_generator(value) or (is_stateful(value) and _is_users(value)):
            seen.add(id(value))
            yield place, value
        elif isinstance(value, (dict, *_LISTS)) and len(value) <= _LONGEST:
            seen.add(id(value))
            elements = value.items() if isinstance(value, dict) else enumerate(value)
            waiting.extend((f'{place}[{key!r}]', each) for key, each in elements if type(each) not in _SCALARS)


def state_of(each: Any) -> Any:
    """What a checkpoint holds of one of the objects that `stateful` gives."""
    return generator_state(each) if is_generator(each) else each.state_dict()


def load_state(each: Any, state: Any) -> None:
    """Give an object back what `state_of` gave."""
    if is_generator(each):
        set_generator_state(each, state)
    else:
        each.load_state_dict(state)


def put_back(now: Any, saved: Any) -> Any:
    """What to set in the place of ``now``: tensors and containers stay the same objects, since others may hold them."""
    if isinstance(saved, Tensor):
        if not isinstance(now, Tensor) or now.shape != saved.shape or now.dtype != saved.dtype:
            return saved.clone()
        with torch.no_grad():
            return now.copy_(saved)
    if isinstance(saved, dict):
        fields = now if isinstance(now, dict) else {}
        elements = {key: put_back(fields.get(key), each) for key, each in saved.items()}
        fields.clear()
        fields.update(elements)
        return fields
    if isinstance(saved, list):
        items: Any = now if isinstance(now, _LISTS) else []
        before = () if isinstance(items, set) else items
        parts = [put_back(*pair) for pair in zip_longest(islice(before, len(saved)), saved)]
        if isinstance(items, tuple):
            return tuple(parts)
        items.clear()
        (items.update if isinstance(items, set) else items.extend)(parts)
        return items
    return saved


def _is_users(value: Any) -> bool:
    """Loaders and hooks of runnerkit are saved by those who use them."""
    return isinstance(value, (nn.Module, Optimizer)) or not type(value).__module__.startswith('runnerkit.')


def _mark(value: Any, depth: int = 0) -> tuple[Any, ...] | None:
    """What tells whether ``value`` has changed, behind its kind; None if that cannot be seen.

    Tensors are known by themselves and how often they were written to, since they may be large.
    """
    if type(value) in _SCALARS:
        return 'scalar', value
    if type(value) is Tensor:
        is_result = value.grad_fn is not None  # of a step, which the next one computes again
        return None if is_result or value.is_inference() else ('tensor', value, value._version)
    if isinstance(value, np.ndarray):
        return 'array', batch_checksums(value)
    if not isinstance(value, (dict, *_LISTS)) or depth > _DEEPEST:
        return None
    if len(value) > _LONGEST:
        return 'long', len(value)
    keys = list(value) if isinstance(value, dict) else []
    marks = [_mark(each, depth + 1) for each in (value.values() if isinstance(value, dict) else value)]
    if None in marks or not all(type(key) in _SCALARS for key in keys):
        return None
    return 'container', keys, marks


def _same(one: tuple[Any, ...], other: tuple[Any, ...] | None) -> bool:
    if other is None or one[0] != other[0]:
        return False
    if one[0] == 'tensor':
        return one[1] is other[1] and one[2] == other[2]
    if one[0] == 'container':
        return one[1] == other[1] and len(one[2]) == len(other[2]) and all(map(_same, one[2], other[2]))
    return bool(one[1] == other[1])


def _is_saved(mark: tuple[Any, ...]) -> bool:
    """Whether what has this mark has a place in a checkpoint."""
    return mark[0] in ('scalar', 'tensor') or (mark[0] == 'container' and all(map(_is_saved, mark[2])))


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copy(each) for key, each in value.items()}
    return [_copy(each) for each in value] if isinstance(value, _LISTS) else value
