"""Mutable state reachable from a loader: generators, and objects with a ``state_dict``, by place.

All parts of a loader are walked (`runnerkit.data.walk`). Other attributes that change while the loader is read are
found as well; they are not saved, so a resume reports them.
"""

from __future__ import annotations

import marshal
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from runnerkit.data.checksum import batch_checksums
from runnerkit.data.generator_state import generator_state, set_generator_state
from runnerkit.data.kinds import parts_with_epoch
from runnerkit.data.walk import (
    CONTAINERS,
    MOST_ELEMENTS,
    collect_attributes,
    collect_parts,
    epoch_of,
    is_stateful,
    kind_of,
)


class LoaderState:
    """The state of ``loader``.

    Args:
        loader: any iterable of batches. Changes of its attributes are counted from the state that it has now.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self._at_first = {place: _fingerprint(value) for place, value in collect_attributes(loader).items()}

    def states(self) -> dict[str, Any]:
        """The states of all generators, of all objects with a ``state_dict``, and the epochs of objects that only the
        user's code gives one, by place."""
        found: dict[str, Any] = {}
        set_by_run = {id(part) for part in parts_with_epoch(self.loader)}
        for place, each in collect_parts(self.loader).objects.items():
            if kind_of(each).is_generator:
                found[place] = {'generator': generator_state(each)}
            elif each is not self.loader and is_stateful(each):
                found[place] = {'state_dict': each.state_dict()}
            elif id(each) not in set_by_run and (epoch := epoch_of(each)) is not None:
                found[place] = {'epoch': epoch}
        return found

    def restore(self, states: Mapping[str, Any], pass_is_open: bool = False, with_order: bool = True) -> list[str]:
        """Restore what `states` returned, in the same process or another.

        Args:
            states: of this loader, or of one that is built alike. Attributes, which earlier versions saved, are left
                out.
            pass_is_open: leave samplers with a ``state_dict`` alone: a state that they get in the middle of a pass is
                often meant for the next one.
            with_order: whether to restore the parts that make the order of the samples.

        Returns:
            The places that no longer exist, or hold something else.
        """
        objects, of_order = collect_parts(self.loader)
        missing = []
        for place, state in states.items():
            is_order = place in of_order
            if is_attribute(state) or (is_order and not with_order):
                continue
            if 'in_order' in state:  # of a checkpoint of the first format
                generators = [objects[place] for place in objects if place in of_order.intersection(self.generators())]
                for generator, own in zip(generators, state['in_order'], strict=False):
                    generator.set_state(own.cpu())
            elif place not in objects:
                missing.append(place)
            elif 'generator' in state:
                if not set_generator_state(objects[place], state['generator']):
                    missing.append(place)
            elif pass_is_open and is_order:
                continue
            elif 'epoch' in state:
                objects[place].set_epoch(state['epoch'])
            else:
                objects[place].load_state_dict(state['state_dict'])
        return missing

    def generators(self) -> list[str]:
        """The places of all generators."""
        objects = collect_parts(self.loader).objects
        return [place for place, each in objects.items() if kind_of(each).is_generator]

    def of_order(self) -> set[str]:
        """The places of the parts that make the order of the samples: samplers, the loader's generator, and their
        parts."""
        return collect_parts(self.loader).of_order

    def changed(self) -> list[str]:
        """The places of attributes that have changed, and of live iterators: they are not saved."""
        values = collect_attributes(self.loader)
        # An object that has opened something since (a file) may have noted so in another attribute.
        opened = {place.rpartition('.')[0] for place in self._at_first if place not in values}
        return [
            place
            for place, value in values.items()
            if kind_of(value).is_iterator
            or (place.rpartition('.')[0] not in opened and self._at_first.get(place) != _fingerprint(value))
        ]


def is_attribute(state: Mapping[str, Any]) -> bool:
    """Whether ``state``, at a place in a checkpoint, is the value of an attribute, as earlier versions saved it."""
    return 'value' in state or 'array' in state


def same_state(one: Any, other: Any) -> bool:
    """Whether two states are equal, tensors in them included; a NaN equals another one."""
    if isinstance(one, (Tensor, np.ndarray)):
        if type(one) is not type(other) or one.shape != other.shape or one.dtype != other.dtype:
            return False
        one, other = (each.cpu() if isinstance(each, Tensor) else each for each in (one, other))
        return bool(((one == other) | ((one != one) & (other != other))).all())
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_state(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(a is b or same_state(a, b) for a, b in zip(one, other, strict=True))
    return type(one) is type(other) and bool(one == other or (one != one and other != other))


def _fingerprint(value: Any) -> Any:
    """Something small that differs when ``value`` has changed, as far as that can be seen in little time."""
    if isinstance(value, (Tensor, np.ndarray)):
        return type(value), batch_checksums(value)
    if kind_of(value).is_table:
        rows = value.iloc[:: max(1, len(value) // 200)]
        return value.shape, zlib.crc32(rows.to_csv().encode())
    if not isinstance(value, CONTAINERS):
        return type(value), repr(value)
    if len(value) > MOST_ELEMENTS:
        return type(value), len(value)
    plain: Any = dict(value) if isinstance(value, Mapping) else list(value)
    with suppress(ValueError):  # version 2 has no references, which depend on who else holds an element
        return type(value), zlib.crc32(marshal.dumps(plain, 2))
    elements = plain.values() if isinstance(plain, dict) else plain
    return type(value), len(value), [_fingerprint_of_element(each) for each in elements]


def _fingerprint_of_element(value: Any) -> Any:
    if isinstance(value, (torch.Tensor, np.ndarray)):  # whose repr would take longer than an iteration
        size = value.numel() if isinstance(value, Tensor) else value.size
        return batch_checksums(value) if size <= MOST_ELEMENTS else value.shape
    return repr(value) if kind_of(value).is_value and not kind_of(value).is_table else type(value)
