"""The state of the attributes that the user of an experiment sets, for checkpoints."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Mapping
from itertools import islice, zip_longest
from operator import is_
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from runnerkit.data.checksum import batch_checksums
from runnerkit.data.kinds import is_stateful
from runnerkit.data.loader_state import generator_state, is_generator, set_generator_state

_SCALARS = (type(None), bool, int, float, str)
_LISTS = (list, tuple, deque, set)

#: What a checkpoint gives back as it was; other kinds of lists and dicts are put back into one of the same kind.
_KEPT = (list, tuple, set, dict, OrderedDict, Counter)

#: The key of a number of numpy in a checkpoint.
_NUMPY = 'a number of numpy'

#: Longer lists are data, not state.
_LONGEST = 10_000

#: In deeper ones nothing is looked at.
_DEEPEST = 20


class AttributeState:
    """The state of the attributes of an experiment.

    Objects with a ``state_dict`` and random generators are saved always, also in lists and dicts. Numbers, texts,
    tensors, and lists and dicts of these are saved if they have changed since the run began: the program sets
    the others, and may have changed when the run resumes. Of other objects it is seen whether they were replaced, or
    numbers and texts in them.

    Args:
        attributes: the user's, as they are when the run begins.
        saved: the ids of objects that are saved otherwise.
    """

    def __init__(self, attributes: Mapping[str, Any], saved: set[int]) -> None:
        self._at_first = {name: _mark(value, saved) for name, value in attributes.items()}

    def state_dict(self, attributes: Mapping[str, Any], saved: set[int]) -> dict[str, Any]:
        """What a checkpoint has to hold of ``attributes``.

        Args:
            attributes: as they are now.
            saved: the ids of objects that are saved otherwise.
        """
        objects = {place: state_of_object(each) for place, each in stateful(attributes, saved)}
        values = {
            name: _copy(attributes[name])
            for name, mark, first in self._changed(attributes, saved)
            if _is_saved(mark, first)
        }
        return {'attributes': objects, 'values': values}

    def unsaved(self, attributes: Mapping[str, Any], saved: set[int]) -> list[str]:
        """The names of attributes that have changed since the run began, and that are not part of `state_dict`."""
        return [name for name, mark, first in self._changed(attributes, saved) if not _is_saved(mark, first)]

    def _changed(self, attributes: Mapping[str, Any], saved: set[int]) -> Iterator[tuple[str, Any, Any]]:
        """The attributes that have changed, each with its mark now and at first."""
        for name, value in attributes.items():
            mark, first = _mark(value, saved), self._at_first.get(name)
            if mark is not None and not _same(mark, first):
                yield name, mark, first


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


def state_of_object(each: Any) -> Any:
    """What a checkpoint holds of one of the objects that `stateful` gives."""
    return generator_state(each) if is_generator(each) else each.state_dict()


def load_state(each: Any, state: Any) -> None:
    """Give an object back what `state_of_object` gave."""
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
        if saved.keys() == {_NUMPY}:
            name, number = saved[_NUMPY]
            return np.dtype(name).type(number)
        fits = isinstance(now, dict) and type(saved) in (dict, type(now))
        fields = now if fits else type(saved)()
        elements = {key: put_back(fields.get(key), each) for key, each in saved.items()}
        fields.clear()
        fields.update(elements)
        return fields
    if isinstance(saved, _LISTS):
        # A list may have been a deque; in files of former versions, also a tuple or a set.
        fits = isinstance(now, _LISTS if type(saved) is list else type(saved))
        items: Any = now if fits else type(saved)()
        before = () if isinstance(items, set) else items
        parts = [put_back(*pair) for pair in zip_longest(islice(before, len(saved)), saved)]
        if isinstance(items, tuple):
            return items._make(parts) if hasattr(items, '_make') else tuple(parts)
        items.clear()
        (items.update if isinstance(items, set) else items.extend)(parts)
        return items
    return saved


def _is_users(value: Any) -> bool:
    """Loaders and hooks of runnerkit are saved by those who use them."""
    return isinstance(value, (nn.Module, Optimizer)) or not type(value).__module__.startswith('runnerkit.')


def _mark(value: Any, saved: set[int], depth: int = 0) -> tuple[Any, ...] | None:
    """What tells whether ``value`` has changed, behind its kind; None if that cannot be seen.

    Tensors are known by themselves and how often they were written to, since they may be large.
    """
    if _is_scalar(value):
        return 'scalar', value
    if id(value) in saved:
        return ('other',)
    if type(value) in (Tensor, nn.Parameter):
        is_result = value.grad_fn is not None  # of a step, which the next one computes again
        return None if is_result or value.is_inference() else ('tensor', value, value._version)
    if isinstance(value, np.ndarray):
        return 'array', batch_checksums(value)
    is_container = isinstance(value, (dict, *_LISTS))
    if is_stateful(value) or is_generator(value) or not (is_container or _is_users(value)):
        return ('other',)  # saved otherwise
    if not is_container:
        numbers = {name: each for name, each in getattr(value, '__dict__', {}).items() if _is_scalar(each)}
        # Of an iterator, it cannot be seen whether it has moved on.
        return 'object', object() if isinstance(value, Iterator) else value, numbers
    is_dict = isinstance(value, dict)
    if len(value) > _LONGEST:
        return 'long', [*value, *(value.values() if is_dict else ())]
    parts = value.items() if is_dict else zip(value, value, strict=True) if isinstance(value, set) else enumerate(value)
    marks = {} if depth > _DEEPEST else {key: _mark(each, saved, depth + 1) for key, each in parts}
    return None if depth > _DEEPEST or None in marks.values() else ('container', marks, type(value))


def _is_scalar(value: Any) -> bool:
    is_of_numpy = isinstance(value, np.generic) and value.dtype.kind in 'biuf' and value.dtype.itemsize <= 8
    return type(value) in _SCALARS or is_of_numpy


def _same(one: tuple[Any, ...], other: tuple[Any, ...] | None) -> bool:
    if other is None or one[0] != other[0]:
        return False
    if one[0] in ('tensor', 'object'):
        return one[1] is other[1] and bool(one[2] == other[2])
    if one[0] == 'long':
        return len(one[1]) == len(other[1]) and all(map(is_, one[1], other[1]))
    if one[0] == 'container':
        pairs = zip(one[1].items(), other[1].items(), strict=False)
        return len(one[1]) == len(other[1]) and all(_is_same_key(a, b) and _same(x, y) for (a, x), (b, y) in pairs)
    return one[0] == 'other' or (type(one[1]) is type(other[1]) and bool(one[1] == other[1]))


def _is_saved(mark: tuple[Any, ...], first: tuple[Any, ...] | None) -> bool:
    """Whether a checkpoint gives back what has this mark just as it is, ``first`` being the mark in its place at first,
    which a resumed program sets again."""
    first = first if first is not None and first[0] == mark[0] else (None, {}, None)
    if mark[0] == 'tensor':
        is_plain = type(mark[1]) is Tensor and not mark[1].requires_grad
        return is_plain or _kind_of_tensor(mark[1]) == _kind_of_tensor(first[1])
    if mark[0] != 'container':
        return mark[0] == 'scalar'
    _, marks, kind = mark
    return (kind in _KEPT or kind is first[2]) and all(
        _is_key(key) and _is_saved(each, first[1].get(key)) for key, each in marks.items()
    )


def _kind_of_tensor(value: Any) -> tuple[Any, ...]:
    return type(value), getattr(value, 'shape', None), getattr(value, 'requires_grad', None)


def _is_key(value: Any) -> bool:
    return _is_scalar(value) or (type(value) is tuple and all(map(_is_key, value)))


def _is_same_key(one: Any, other: Any) -> bool:
    return one is other or bool(_is_key(one) and _is_key(other) and one == other)


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, np.generic):
        return {_NUMPY: (value.dtype.str, value.item())}
    if isinstance(value, dict):
        made = {key: _copy(each) for key, each in value.items()}
        return type(value)(made) if type(value) in _KEPT else made
    if isinstance(value, set):
        return set(value)
    return (tuple if isinstance(value, tuple) else list)(map(_copy, value)) if isinstance(value, _LISTS) else value
