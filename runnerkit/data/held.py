"""Mutable state reachable from a loader: generators, counters, objects with a ``state_dict``.

All parts of a loader are walked (`runnerkit.data.walk`), and what of them changes is found by its place.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from runnerkit.data.checksum import batch_checksums
from runnerkit.data.generator_state import generator_state, set_generator_state
from runnerkit.data.walk import CONTAINERS, MOST_ELEMENTS, SCALARS, attributes_of, is_stateful, kind_of, look
from runnerkit.utils.user_files import file_of_module

_ATOMS = (type(None), bool, float, complex, str, bytes)

#: Arrays that torch can take over into a checkpoint.
_ARRAYS = ('bool', 'uint8', 'int8', 'int16', 'int32', 'int64', 'float16', 'float32', 'float64')

#: Deeper containers, and integers of more bits, are not written to checkpoints.
_DEEPEST, _MOST_BITS = 50, 1000


class Held:
    """What ``loader`` holds.

    Args:
        loader: any iterable of batches; what it holds now is what it is built with.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self._at_first = {place: _copy(_mark(value)) for place, value in look(loader).values.items()}

    def states(self) -> dict[str, Any]:
        """The states of all generators and of objects with a ``state_dict``, and the plain attributes that have changed
        since the start, by place: tensors and plain values."""
        found: dict[str, Any] = {}
        objects, values, _ = look(self.loader)
        for place, each in objects.items():
            if kind_of(each).is_generator:
                found[place] = {'generator': generator_state(each)}
            elif each is not self.loader and is_stateful(each):
                found[place] = {'state_dict': each.state_dict()}
        for place, value in self._changed(values):
            if isinstance(value, (np.ndarray, np.generic)) and _is_plain(value):
                found[place] = {'array': torch.from_numpy(np.array(value)), 'scalar': isinstance(value, np.generic)}
            elif _is_plain(value):
                found[place] = {'value': _copy(value)}
        return found

    def go_back(self, states: Mapping[str, Any]) -> None:
        """Be what it was when `states` were taken, in the same process or another: what had not changed by then is as
        it was at first."""
        objects, values, _ = look(self.loader)
        for place, _ in list(self._changed(values)):
            mark = self._at_first.get(place, ())
            if place not in states and mark[:1] == ('plain',):
                owner, _, name = place.rpartition('.')
                _put(objects[owner], name, _copy(mark[1]))
        self.restore(states)

    def restore(self, states: Mapping[str, Any], pass_is_open: bool = False, of_order: bool = True) -> list[str]:
        """Give everything back what `states` gave.

        Args:
            states: of this loader or one that is built alike.
            pass_is_open: leave samplers with a ``state_dict`` alone: one that is given to them in the middle of a pass
                is often meant for the next one.
            of_order: whether samplers are among what is given back.

        Returns:
            The places that are not there any more, or hold something else.
        """
        objects = look(self.loader).objects
        order, missing = self.of_order(states), []
        for place, state in states.items():
            if place in order and not of_order:
                continue
            owner, _, name = place.rpartition('.')
            if 'value' in state or 'array' in state:
                value = state['array'].cpu().numpy().copy() if 'array' in state else _copy(state['value'])
                value = value[()] if state.get('scalar') else value
                if owner not in objects or not _put(objects[owner], name, value):
                    missing.append(place)
            elif 'in_order' in state:  # of a checkpoint of the first format
                places = self.of_order(self.generators())
                generators = [objects[place] for place in objects if place in places]
                for generator, own in zip(generators, state['in_order'], strict=False):
                    generator.set_state(own.cpu())
            elif place not in objects:
                missing.append(place)
            elif 'generator' in state:
                if not set_generator_state(objects[place], state['generator']):
                    missing.append(place)
            elif not pass_is_open or place not in order:
                objects[place].load_state_dict(state['state_dict'])
        return missing

    def generators(self) -> list[str]:
        """The places of all generators."""
        return [place for place, each in look(self.loader).objects.items() if kind_of(each).is_generator]

    def of_order(self, places: Iterable[str]) -> set[str]:
        """Those of ``places`` that have a part in the order of the samples: samplers, the loader's generator, and what
        they hold."""
        objects = look(self.loader).of_order
        return {place for place in places if place in objects or place.rpartition('.')[0] in objects}

    def of_files(self, places: Iterable[str]) -> list[str]:
        """Those of ``places`` that are attributes of objects whose class is in a file of the user."""
        objects = look(self.loader).objects
        owners = {place: type(objects.get(place.rpartition('.')[0])).__module__ for place in places}
        return [place for place, module in owners.items() if file_of_module(module)]

    def unsaved(self) -> list[str]:
        """The places of what moves on, or has changed, and cannot be saved: live iterators, queues, caches."""
        values = look(self.loader).values
        iterators = [place for place, value in values.items() if kind_of(value).is_iterator]
        return [*iterators, *(place for place, value in self._changed(values) if not _is_plain(value))]

    def _changed(self, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Those of the loader's ``values`` that are not what they were at first."""
        opened = {place.rpartition('.')[0] for place in self._at_first if place not in values}
        for place, value in values.items():
            # An object that has opened something since (a file) may have noted so in a flag, which must not be set
            # where nothing is open.
            if kind_of(value).is_iterator or place.rpartition('.')[0] in opened:
                continue
            if place not in self._at_first or not same_state(self._at_first[place], _mark(value)):
                yield place, value


def same_state(one: Any, other: Any) -> bool:
    """Whether two states are equal, tensors in them included."""
    if type(one) in SCALARS:
        return type(one) is type(other) and bool(one == other or (one != one and other != other))
    if isinstance(one, (Tensor, np.ndarray)):
        if type(one) is not type(other) or one.shape != other.shape or one.dtype != other.dtype:
            return False
        one, other = (each.cpu() if isinstance(each, Tensor) else each for each in (one, other))
        return bool(((one == other) | ((one != one) & (other != other))).all())  # a NaN is like another
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(
            one[key] is other[key] or same_state(one[key], other[key]) for key in one
        )
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(a is b or same_state(a, b) for a, b in zip(one, other, strict=True))
    return type(one) is type(other) and bool(one == other or (one != one and other != other))


def _put(owner: Any, name: str, value: Any) -> bool:
    """Set the attribute, or the variable that a function closes over; returns whether there is such a thing.

    What is equal already stays the very object: a running iterator may hold it, too.
    """
    if same_state(_mark(value), _mark_of(dict(attributes_of(owner)).get(name, _ABSENT))):
        return True
    if isinstance(owner, FunctionType):
        cells = dict(zip(owner.__code__.co_freevars, owner.__closure__ or (), strict=True))
        if name in cells:
            cells[name].cell_contents = value
        return name in cells
    try:
        object.__setattr__(owner, name, value)
    except (AttributeError, TypeError):
        return False
    return True


def _mark(value: Any) -> tuple[Any, ...]:
    """What tells whether ``value`` has changed."""
    if kind_of(value).is_iterator:
        return ('iterator',)
    if _is_plain(value):
        return 'plain', value
    if isinstance(value, (Tensor, np.ndarray)):
        return 'array', batch_checksums(value)
    if kind_of(value).is_table:
        rows = value.iloc[:: max(1, len(value) // 200)]
        return 'table', value.shape, zlib.crc32(rows.to_csv().encode())
    if not isinstance(value, CONTAINERS):
        return type(value).__name__, repr(value)
    few = len(value) <= MOST_ELEMENTS
    elements = value.items() if isinstance(value, Mapping) else value
    return type(value).__name__, len(value), [_brief(each) for each in elements if _is_plain(each)] if few else []


def _brief(value: Any) -> Any:
    """What tells whether a small value has changed. The repr of a tensor would take longer than an iteration."""
    if isinstance(value, (Tensor, np.ndarray)):
        return [checksum for checksum, _ in batch_checksums(value).values()]
    return repr(value)


_ABSENT = object()


def _mark_of(value: Any) -> tuple[Any, ...]:
    return _mark(value) if kind_of(value).is_value else ()


def _is_plain(value: Any) -> bool:
    """Whether ``value`` can be put into a checkpoint, and is small."""
    return _plain_size(value) <= MOST_ELEMENTS


def _plain_size(value: Any, depth: int = 0) -> float:
    """Of how many numbers and texts ``value`` consists; infinite if it holds anything else, or a checkpoint would not
    give it back as it is."""
    if type(value) in SCALARS:
        return inf if type(value) is int and value.bit_length() > _MOST_BITS else 1
    if isinstance(value, Tensor):
        stored = type(value) is Tensor and value.layout is torch.strided and not value.is_nested and not value.is_meta
        return value.numel() if stored and not value.is_quantized else inf
    if isinstance(value, (np.ndarray, np.generic)):
        stored = type(value) is np.ndarray or isinstance(value, np.generic)
        return value.size if stored and value.dtype.name in _ARRAYS and value.dtype.isnative and not depth else inf
    if type(value) not in (list, tuple, set, dict) or len(value) > MOST_ELEMENTS or depth > _DEEPEST:
        return inf
    parts = [part for pair in value.items() for part in pair] if isinstance(value, dict) else value
    size = 1.0
    for part in parts:
        size += 1 if type(part) in _ATOMS else _plain_size(part, depth + 1)
        if size > MOST_ELEMENTS:
            return inf
    return size


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if type(value) in (list, tuple, set):
        return type(value)(_copy(each) for each in value)
    if type(value) is dict:
        return {key: _copy(each) for key, each in value.items()}
    return value
