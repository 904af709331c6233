"""Everything that a loader holds and that moves on as it is read: generators, counters, objects with a ``state_dict``.

A loader is an object with others inside: sampler, batch sampler, data set, transforms, collate function. All of them
are walked, and what of them changes is found by its place, such as ``loader.dataset.transforms[1].rng``.
"""

from __future__ import annotations

import io
import random
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

#: What of a DataLoader is its user's; the rest is torch's own.
_PARTS = ('generator', 'sampler', 'batch_sampler', 'dataset', 'collate_fn', 'worker_init_fn')

_SCALARS = (type(None), bool, int, float, complex, str, bytes)
_GENERATORS = (torch.Generator, random.Random, np.random.Generator, np.random.RandomState)
_LEAVES = (type, ModuleType, BuiltinFunctionType, nn.Module, torch.device, torch.dtype, np.dtype, io.IOBase)

_OF_FORMAT_1 = ('loader.generator', 'loader.sampler.', 'loader.batch_sampler.')

#: Arrays that torch can take over into a checkpoint.
_ARRAYS = ('bool', 'uint8', 'int8', 'int16', 'int32', 'int64', 'float16', 'float32', 'float64')

#: Containers of more elements than this are data, not state; and so many objects are looked at in all.
_MOST_ELEMENTS, _MOST_OBJECTS = 1000, 2000


class Held:
    """What ``loader`` holds.

    Args:
        loader: any iterable of batches; what it holds now is what it is built with.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self._at_first = {place: _mark(value) for place, (_, _, value) in _values(loader).items()}

    def states(self) -> dict[str, Any]:
        """The states of all generators and of objects with a ``state_dict``, and the plain attributes that have changed
        since the start, by place: tensors and plain values."""
        found: dict[str, Any] = {}
        for place, each in _objects(self.loader):
            if isinstance(each, _GENERATORS):
                found[place] = {'generator': generator_state(each)}
            elif each is not self.loader and _is_stateful(each):
                found[place] = {'state_dict': each.state_dict()}
        for place, value in self._changed():
            if isinstance(value, np.ndarray) and _is_plain(value):
                found[place] = {'array': torch.from_numpy(value.copy())}
            elif _is_plain(value):
                found[place] = {'value': _copy(value)}
        return found

    def restore(self, states: Mapping[str, Any], pass_is_open: bool = False) -> list[str]:
        """Give everything back what `states` gave.

        Args:
            states: of this loader or one that is built alike.
            pass_is_open: leave samplers with a ``state_dict`` alone: one that is given to them in the middle of a pass
                is often meant for the next one.

        Returns:
            The places that are not there any more, or hold something else.
        """
        objects = dict(_objects(self.loader))
        values = _values(self.loader)
        missing = []
        for place, state in states.items():
            if 'value' in state or 'array' in state:
                if place in values:
                    owner, name, _ = values[place]
                    _put(owner, name, state['array'].cpu().numpy() if 'array' in state else _copy(state['value']))
                else:
                    missing.append(place)
            elif 'in_order' in state:  # of a checkpoint of the first format
                generators = [objects[place] for place in self.generators() if place.startswith(_OF_FORMAT_1)]
                for generator, own in zip(generators, state['in_order'], strict=False):
                    generator.set_state(own.cpu())
            elif place not in objects:
                missing.append(place)
            elif 'generator' in state:
                if not set_generator_state(objects[place], state['generator']):
                    missing.append(place)
            elif not pass_is_open or 'sampler' not in place:
                objects[place].load_state_dict(state['state_dict'])
        return missing

    def generators(self) -> list[str]:
        """The places of all generators."""
        return [place for place, each in _objects(self.loader) if isinstance(each, _GENERATORS)]

    def unsaved(self) -> list[str]:
        """The places of what has changed and cannot be saved: live iterators, queues, caches."""
        return [place for place, value in self._changed() if not _is_plain(value)]

    def _changed(self) -> Iterator[tuple[str, Any]]:
        for place, (_, _, value) in _values(self.loader).items():
            mark = _mark(value)
            if place in self._at_first:
                if not same_state(self._at_first[place], mark):
                    yield place, value
            elif mark[0] == 'iterator':
                yield place, value


def generator_state(generator: Any) -> dict[str, Any]:
    """The state of a generator of torch, Python or numpy: tensors and plain values."""
    if isinstance(generator, torch.Generator):
        return {'torch': generator.get_state()}
    if isinstance(generator, random.Random):
        version, words, gauss = generator.getstate()
        return {'python': [version, torch.from_numpy(np.array(words)), gauss]}
    if isinstance(generator, np.random.RandomState):
        return {'numpy': _plain_arrays(generator.get_state(legacy=False))}
    return {'numpy': _plain_arrays(generator.bit_generator.state)}


def set_generator_state(generator: Any, state: Mapping[str, Any]) -> bool:
    """Give ``generator`` back what `generator_state` gave; returns whether it is one of that kind."""
    try:
        if isinstance(generator, torch.Generator):
            generator.set_state(state['torch'].cpu())
        elif isinstance(generator, random.Random):
            version, words, gauss = state['python']
            generator.setstate((version, tuple(words.tolist()), gauss))
        elif isinstance(generator, np.random.RandomState):
            generator.set_state(_with_arrays(state['numpy']))
        else:
            generator.bit_generator.state = _with_arrays(state['numpy'])
    except (KeyError, ValueError, TypeError, AttributeError):
        return False
    return True


def _plain_arrays(state: Any) -> Any:
    if isinstance(state, np.ndarray):
        return {'dtype': str(state.dtype), 'words': torch.from_numpy(state.astype(np.int64))}
    return {key: _plain_arrays(each) for key, each in state.items()} if isinstance(state, Mapping) else state


def _with_arrays(state: Any) -> Any:
    if not isinstance(state, Mapping):
        return state
    if set(state) == {'dtype', 'words'}:
        return state['words'].cpu().numpy().astype(state['dtype'])
    return {key: _with_arrays(each) for key, each in state.items()}


def same_state(one: Any, other: Any) -> bool:
    """Whether two states are equal, tensors in them included."""
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one.cpu(), other.cpu())
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_state(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same_state, one, other))
    return type(one) is type(other) and (one == other or one is other)


# --- walking through a loader ----------------------------------------------------------------------------------------


def _objects(loader: Any) -> Iterator[tuple[str, Any]]:
    """Every object that ``loader`` is made of, each once, with its place; nearest ones first."""
    seen: set[int] = set()
    waiting = deque([('loader', loader)])
    while waiting and len(seen) < _MOST_OBJECTS:
        place, each = waiting.popleft()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield place, each
        if not isinstance(each, _GENERATORS):
            waiting.extend((f'{place}{name}', part) for name, part in _parts(each) if not _is_leaf(part))


def _parts(each: Any) -> Iterator[tuple[str, Any]]:
    """What is directly inside of ``each``, by how to get there."""
    if isinstance(each, DataLoader):
        # What seeds the workers of our own loader is no state.
        yield from ((f'.{name}', getattr(each, name, None)) for name in _PARTS[_is_ours(each) :])
    elif isinstance(each, (list, tuple, set, frozenset, deque)):
        if len(each) <= _MOST_ELEMENTS:
            yield from ((f'[{i}]', part) for i, part in enumerate(each))
    elif isinstance(each, Mapping):
        if len(each) <= _MOST_ELEMENTS:
            yield from ((f'[{key!r}]', part) for key, part in each.items())
    elif isinstance(each, FunctionType):
        yield from ((f'.{name}', part) for name, part in _closure(each))
    elif isinstance(each, MethodType):
        yield '.__self__', each.__self__
    elif isinstance(each, partial):
        yield '.func', each.func
        yield '.args', each.args
        yield '.keywords', each.keywords
    else:
        yield from ((f'.{name}', part) for name, part in _attributes(each))


def _attributes(each: Any) -> Iterator[tuple[str, Any]]:
    try:
        yield from list(vars(each).items())
    except TypeError:
        pass
    for kind in type(each).__mro__:
        names = kind.__dict__.get('__slots__', ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ('__dict__', '__weakref__') and hasattr(each, name):
                yield name, getattr(each, name)


def _is_leaf(value: Any) -> bool:
    return isinstance(value, (*_SCALARS, Tensor, np.ndarray, np.generic, *_LEAVES)) or _is_iterator(value)


def _values(loader: Any) -> dict[str, tuple[Any, str, Any]]:
    """The attributes of ``loader``'s objects that are values and no objects: owner, name and value by place."""
    found: dict[str, tuple[Any, str, Any]] = {}
    for place, each in _objects(loader):
        if isinstance(each, (DataLoader, *_GENERATORS, list, tuple, set, frozenset, deque, Mapping)) or (
            _is_ours(each) or _is_stateful(each)
        ):
            continue
        names = _closure(each) if isinstance(each, FunctionType) else _attributes(each)
        for name, value in names:
            if _is_value(value):
                found[f'{place}.{name}'] = each, name, value
    return found


def _closure(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The variables that ``function`` closes over."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue


def _put(owner: Any, name: str, value: Any) -> None:
    """Set the attribute, or the variable that a function closes over."""
    if isinstance(owner, FunctionType):
        cells = dict(zip(owner.__code__.co_freevars, owner.__closure__ or (), strict=True))
        cells[name].cell_contents = value
    else:
        object.__setattr__(owner, name, value)


def _is_value(value: Any) -> bool:
    containers = (list, tuple, set, frozenset, deque, dict)
    return isinstance(value, (*_SCALARS, Tensor, np.ndarray, *containers)) or _is_iterator(value)


def _is_iterator(value: Any) -> bool:
    return hasattr(type(value), '__next__') and not isinstance(value, (io.IOBase, *_GENERATORS))


def _is_ours(each: Any) -> bool:
    return type(each).__module__.startswith('runnerkit.')


def _is_stateful(each: Any) -> bool:
    return callable(getattr(each, 'state_dict', None)) and callable(getattr(each, 'load_state_dict', None))


def _mark(value: Any) -> tuple[Any, ...]:
    """What tells whether ``value`` has changed."""
    if _is_iterator(value):
        return 'iterator', id(value)
    if isinstance(value, (Tensor, np.ndarray)):
        if isinstance(value, np.ndarray) and value.dtype == object:
            return 'objects', value.shape
        size = value.numel() if isinstance(value, Tensor) else value.size
        return ('array', _copy(value)) if size <= _MOST_ELEMENTS else ('large array', tuple(value.shape))
    if isinstance(value, _SCALARS):
        return 'scalar', value
    if len(value) > _MOST_ELEMENTS:
        return 'large', len(value)
    elements = value.items() if isinstance(value, Mapping) else value
    plain = [each for each in elements if isinstance(each, (*_SCALARS, tuple)) and _is_plain(each)]
    return type(value).__name__, len(value), sorted(plain, key=repr) if isinstance(value, (set, frozenset)) else plain


def _is_plain(value: Any) -> bool:
    """Whether ``value`` can be put into a checkpoint, and is small."""
    if isinstance(value, (bool, *_SCALARS)):
        return True
    if isinstance(value, Tensor):
        return type(value) is Tensor
    if isinstance(value, np.ndarray):
        return type(value) is np.ndarray and value.dtype.name in _ARRAYS
    if type(value) in (list, tuple, set, frozenset):
        return (
            len(value) <= _MOST_ELEMENTS
            and not any(isinstance(each, np.ndarray) for each in value)
            and (all(map(_is_plain, value)))
        )
    if type(value) is dict:
        parts = [each for pair in value.items() for each in pair]
        return len(value) <= _MOST_ELEMENTS and all(
            _is_plain(each) and not isinstance(each, np.ndarray) for each in parts
        )
    return False


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(_copy(each) for each in value)
    if type(value) is dict:
        return {key: _copy(each) for key, each in value.items()}
    return value
