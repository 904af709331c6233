"""Everything that a loader holds and that moves on as it is read: generators, counters, objects with a ``state_dict``.

A loader is an object with others inside: sampler, batch sampler, data set, transforms, collate function. All of them
are walked, and what of them changes is found by its place, such as ``loader.dataset.transforms[1].rng``.
"""

from __future__ import annotations

import io
import random
import sys
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from functools import cache, lru_cache, partial
from math import inf
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

from runnerkit.data.checksum import batch_checksums
from runnerkit.utils.user_files import file_of_module, is_ours

#: What of a DataLoader is its user's, and whether it makes the order of the samples; the rest is torch's own.
_PARTS = {
    'generator': True,
    'sampler': True,
    'batch_sampler': True,
    'dataset': False,
    'collate_fn': False,
    'worker_init_fn': False,
}


class Opaque:
    """A base for what a loader holds and no checkpoint is to look into."""


_ATOMS = (type(None), bool, float, complex, str, bytes)
_SCALARS = (*_ATOMS, int)
_PLAIN_CONTAINERS = (list, tuple, set, frozenset, deque, dict)
_CONTAINERS = (*_PLAIN_CONTAINERS, Mapping)
_LEAVES = (type, ModuleType, nn.Module, torch.device, torch.dtype, np.dtype, io.IOBase, Opaque)

#: Objects that are values: they are looked at as a whole, and one is put in the place of another.
_VALUES = (*_SCALARS, Tensor, np.ndarray, np.generic, Enum, PurePath)

#: Packages whose objects belong to the process.
_OF_THE_SYSTEM = ('logging', 'threading', '_thread', 'multiprocessing', 'concurrent', 'asyncio', 'weakref', 'ctypes')

#: Modules whose objects have as their state the place of the last iteration alone, which is not theirs to
#: go on with in the next one: the loader keeps it, or reads again.
OF_ITERATIONS = ('datasets.iterable_dataset',)

#: Packages whose classes hold no generators of their own.
_LIBRARIES = ('builtins', 'torch', 'numpy', 'runnerkit', 'abc', 'typing', 'collections', 'functools')


#: Arrays that torch can take over into a checkpoint.
_ARRAYS = ('bool', 'uint8', 'int8', 'int16', 'int32', 'int64', 'float16', 'float32', 'float64')

#: Containers of more elements than this are data, not state; and so many objects are looked at in all.
_MOST_ELEMENTS, _MOST_OBJECTS = 1000, 2000

#: Deeper containers, and integers of more bits, are not written to checkpoints.
_DEEPEST, _MOST_BITS = 50, 1000


class Held:
    """What ``loader`` holds.

    Args:
        loader: any iterable of batches; what it holds now is what it is built with.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self._at_first = {place: _copy(_mark(value)) for place, value in _look(loader)[1].items()}

    def states(self) -> dict[str, Any]:
        """The states of all generators and of objects with a ``state_dict``, and the plain attributes that have changed
        since the start, by place: tensors and plain values."""
        found: dict[str, Any] = {}
        objects, values, _ = _look(self.loader)
        for place, each in objects.items():
            if _kind(each).is_generator:
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
        objects, values, _ = _look(self.loader)
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
        objects, _, _ = _look(self.loader)
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
        return [place for place, each in _look(self.loader)[0].items() if _kind(each).is_generator]

    def of_order(self, places: Iterable[str]) -> set[str]:
        """Those of ``places`` that have a part in the order of the samples: samplers, the loader's generator, and what
        they hold."""
        objects = _look(self.loader)[2]
        return {place for place in places if place in objects or place.rpartition('.')[0] in objects}

    def of_files(self, places: Iterable[str]) -> list[str]:
        """Those of ``places`` that are attributes of objects whose class is in a file of the user."""
        objects = _look(self.loader)[0]
        owners = {place: type(objects.get(place.rpartition('.')[0])).__module__ for place in places}
        return [place for place, module in owners.items() if file_of_module(module)]

    def unsaved(self) -> list[str]:
        """The places of what moves on, or has changed, and cannot be saved: live iterators, queues, caches."""
        _, values, _ = _look(self.loader)
        iterators = [place for place, value in values.items() if _kind(value).is_iterator]
        return [*iterators, *(place for place, value in self._changed(values) if not _is_plain(value))]

    def _changed(self, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Those of the loader's ``values`` that are not what they were at first."""
        opened = {place.rpartition('.')[0] for place in self._at_first if place not in values}
        for place, value in values.items():
            # An object that has opened something since (a file) may have noted so in a flag, which must not be set
            # where nothing is open.
            if _kind(value).is_iterator or place.rpartition('.')[0] in opened:
                continue
            if place not in self._at_first or not same_state(self._at_first[place], _mark(value)):
                yield place, value


def is_generator(value: Any) -> bool:
    """Whether ``value`` is a random generator of torch, Python or numpy."""
    return _kind(value).is_generator


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
    if type(one) in _SCALARS:
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


# --- walking through a loader ----------------------------------------------------------------------------------------


def _look(loader: Any) -> tuple[dict[str, Any], dict[str, Any], set[str]]:
    """Look at everything that ``loader`` is made of.

    Returns:
        by place, every object, each once, nearest ones first; by place, those of their attributes that are values and
        no objects; the places of the objects that have a part in the order of the samples, rather than in samples and
        batches.
    """
    objects: dict[str, Any] = {}
    values: dict[str, Any] = {}
    of_order: set[str] = set()
    seen: set[int] = set()
    waiting: deque[tuple[str, Any, bool | None]] = deque([('loader', loader, None)])
    while waiting and len(seen) < _MOST_OBJECTS:
        place, each, is_of_order = waiting.popleft()
        if id(each) in seen:
            continue
        seen.add(id(each))
        objects[place] = each
        if is_of_order:
            of_order.add(place)
        if _kind(each).is_generator:
            continue
        is_batches = each is loader and isinstance(each, (list, tuple))
        parts: Iterable[tuple[str, Any]] = ()
        if type(each) in _PLAIN_CONTAINERS:
            if len(each) <= _MOST_ELEMENTS and not is_batches:
                elements = each.items() if type(each) is dict else enumerate(each)
                parts = ((f'[{key!r}]', part) for key, part in elements if not _is_leaf(part))
        else:
            attributes = list(_attributes(each))
            if not (isinstance(each, _CONTAINERS) or _is_ours(each) or is_stateful(each)):
                values.update((f'{place}.{name}', part) for name, part in attributes if _kind(part).is_value)
            if isinstance(each, (MethodType, BuiltinFunctionType)):
                attributes = [('__self__', each.__self__), ('__func__', getattr(each, '__func__', None))]
            if not is_batches:
                parts = ((f'.{name}', part) for name, part in attributes if not _is_leaf(part))
        for name, part in parts:
            known = _PARTS.get(name[1:]) if is_of_order is None else is_of_order
            waiting.append((f'{place}{name}', part, True if known is None and isinstance(part, Sampler) else known))
    return objects, values, of_order


def _attributes(each: Any) -> Iterator[tuple[str, Any]]:
    """What ``each`` has by names: its attributes, what a function closes over, and generators of a class or module."""
    if isinstance(each, DataLoader):
        # What seeds the workers of our own loader is no state.
        yield from ((name, getattr(each, name, None)) for name in list(_PARTS)[_is_ours(each) :])
        if not _is_ours(each):
            yield from ((name, part) for name, part in vars(each).items() if name not in _torchs_own())
        return
    if isinstance(each, FunctionType):
        yield from _closure(each)
        yield from _global_generators(each)
        return
    if isinstance(each, partial):
        yield from (('func', each.func), ('args', each.args), ('keywords', each.keywords))
    with suppress(TypeError):
        yield from list(vars(each).items())
    for kind in type(each).__mro__:
        names = kind.__dict__.get('__slots__', ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ('__dict__', '__weakref__') and hasattr(each, name):
                yield name, getattr(each, name)
        if kind.__module__.partition('.')[0] not in _LIBRARIES:
            for name, part in vars(kind).items():
                if _kind(part).is_generator:
                    yield name, part
                elif isinstance(part, FunctionType):
                    yield from _global_generators(part)


def _closure(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The variables that ``function`` closes over."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue


def _global_generators(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The generators of its module that ``function`` names."""
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if _kind(value).is_generator:
            yield name, value


class _Kind(NamedTuple):
    """What the walk asks of an object's class.

    Attributes:
        is_generator: a generator of random numbers.
        is_iterator: its objects are live iterators.
        is_table: pandas', or like it: its attributes are caches.
        is_value: its objects are looked at as a whole.
        is_leaf: nothing inside its objects is looked at.
    """

    is_generator: bool
    is_iterator: bool
    is_table: bool
    is_value: bool
    is_leaf: bool


@lru_cache(maxsize=1000)
def _kind_of(cls: type) -> _Kind:
    is_generator = issubclass(cls, (torch.Generator, random.Random))
    # It takes 7 ms to import numpy.random, and before that there is none of its generators.
    if 'numpy.random' in sys.modules:
        is_generator = is_generator or issubclass(cls, (np.random.Generator, np.random.RandomState))
    is_iterator = hasattr(cls, '__next__') and not is_generator and not issubclass(cls, io.IOBase)
    is_table = hasattr(cls, 'iloc') and hasattr(cls, 'to_csv')
    is_foreign = cls.__module__.partition('.')[0] in _OF_THE_SYSTEM or cls.__module__ in OF_ITERATIONS
    return _Kind(
        is_generator,
        is_iterator,
        is_table,
        is_value=issubclass(cls, (*_VALUES, *_CONTAINERS)) or is_iterator or is_table,
        is_leaf=issubclass(cls, (*_VALUES, *_LEAVES)) or is_iterator or is_table or is_foreign,
    )


def _kind(value: Any) -> _Kind:
    return _kind_of(type(value))  # type: ignore[arg-type] # mypy thinks that classes have no hash


def _is_leaf(value: Any) -> bool:
    return _kind(value).is_leaf or _is_of_the_process(value)


def _is_of_the_process(value: Any) -> bool:
    """Whether ``value`` is a generator that belongs to the process, not to a loader."""
    if not _kind(value).is_generator:
        return False
    numpys = sys.modules.get('numpy.random.mtrand')
    return (
        value is torch.default_generator
        or value is getattr(random, '_inst', None)
        or value is getattr(numpys, '_rand', None)
    )


@cache
def _torchs_own() -> frozenset[str]:
    """The attributes of a DataLoader that are torch's business."""
    return frozenset([*vars(DataLoader(TensorDataset(torch.zeros(1)))), *_PARTS])


def _put(owner: Any, name: str, value: Any) -> bool:
    """Set the attribute, or the variable that a function closes over; returns whether there is such a thing.

    What is equal already stays the very object: a running iterator may hold it, too.
    """
    if same_state(_mark(value), _mark_of(dict(_attributes(owner)).get(name, _ABSENT))):
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


def _is_ours(each: Any) -> bool:
    return is_ours(type(each).__module__)


def is_stateful(each: Any) -> bool:
    """Whether ``each`` gives its state and takes it back."""
    return callable(getattr(each, 'state_dict', None)) and callable(getattr(each, 'load_state_dict', None))


def _mark(value: Any) -> tuple[Any, ...]:
    """What tells whether ``value`` has changed."""
    if _kind(value).is_iterator:
        return ('iterator',)
    if _is_plain(value):
        return 'plain', value
    if isinstance(value, (Tensor, np.ndarray)):
        return 'array', batch_checksums(value)
    if _kind(value).is_table:
        rows = value.iloc[:: max(1, len(value) // 200)]
        return 'table', value.shape, zlib.crc32(rows.to_csv().encode())
    if not isinstance(value, _CONTAINERS):
        return type(value).__name__, repr(value)
    few = len(value) <= _MOST_ELEMENTS
    elements = value.items() if isinstance(value, Mapping) else value
    return type(value).__name__, len(value), [repr(each) for each in elements if _is_plain(each)] if few else []


_ABSENT = object()


def _mark_of(value: Any) -> tuple[Any, ...]:
    return _mark(value) if _kind(value).is_value else ()


def _is_plain(value: Any) -> bool:
    """Whether ``value`` can be put into a checkpoint, and is small."""
    return _plain_size(value) <= _MOST_ELEMENTS


def _plain_size(value: Any, depth: int = 0) -> float:
    """Of how many numbers and texts ``value`` consists; infinite if it holds anything else, or a checkpoint would not
    give it back as it is."""
    if type(value) in _SCALARS:
        return inf if type(value) is int and value.bit_length() > _MOST_BITS else 1
    if isinstance(value, Tensor):
        stored = type(value) is Tensor and value.layout is torch.strided and not value.is_nested and not value.is_meta
        return value.numel() if stored and not value.is_quantized else inf
    if isinstance(value, (np.ndarray, np.generic)):
        stored = type(value) is np.ndarray or isinstance(value, np.generic)
        return value.size if stored and value.dtype.name in _ARRAYS and value.dtype.isnative and not depth else inf
    if type(value) not in (list, tuple, set, dict) or len(value) > _MOST_ELEMENTS or depth > _DEEPEST:
        return inf
    parts = [part for pair in value.items() for part in pair] if isinstance(value, dict) else value
    size = 1.0
    for part in parts:
        size += 1 if type(part) in _ATOMS else _plain_size(part, depth + 1)
        if size > _MOST_ELEMENTS:
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
