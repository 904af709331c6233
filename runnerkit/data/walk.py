"""Walks through a loader: everything that it is made of, by its place, such as ``loader.dataset.transforms[1].rng``.

A loader is an object with others inside: sampler, batch sampler, data set, transforms, collate function.
"""

from __future__ import annotations

import io
import random
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from functools import cache, lru_cache, partial
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

from runnerkit.utils.user_files import is_ours

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


class Around:
    """A base for what has no state and wraps an object of the user, ``whole``, which has its place: the same
    with and without it."""


#: Values without parts.
SCALARS = (type(None), bool, float, complex, str, bytes, int)
_PLAIN_CONTAINERS = (list, tuple, set, frozenset, deque, dict)
CONTAINERS = (*_PLAIN_CONTAINERS, Mapping)
_LEAVES = (type, ModuleType, nn.Module, torch.device, torch.dtype, np.dtype, io.IOBase, Opaque)

#: Objects that are values: they are looked at as a whole, and one is put in the place of another.
_VALUES = (*SCALARS, Tensor, np.ndarray, np.generic, Enum, PurePath)

#: Packages whose objects belong to the process.
_OF_THE_SYSTEM = ('logging', 'threading', '_thread', 'multiprocessing', 'concurrent', 'asyncio', 'weakref', 'ctypes')

#: Modules whose objects have as their state the place of the last iteration alone, which is not theirs to
#: go on with in the next one: the loader keeps it, or reads again.
OF_ITERATIONS = ('datasets.iterable_dataset',)

#: Attributes of objects with a ``set_epoch``: a resumed run calls that again.
_OF_THE_EPOCH = ('epoch', '_epoch')

#: Packages whose classes hold no generators.
_LIBRARIES = ('builtins', 'torch', 'numpy', 'runnerkit', 'abc', 'typing', 'collections', 'functools')


#: Containers of more elements than this are data, not state; and so many objects are looked at in all.
MOST_ELEMENTS, _MOST_OBJECTS = 1000, 2000


class Parts(NamedTuple):
    """What a loader is made of.

    Attributes:
        objects: by place, every object, each once, nearest ones first.
        of_order: the places of the objects that have a part in the order of the samples, rather than in samples and
            batches.
    """

    objects: dict[str, Any]
    of_order: set[str]


def collect_parts(loader: Any) -> Parts:
    """Everything that ``loader`` is made of."""
    objects: dict[str, Any] = {}
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
        if kind_of(each).is_generator:
            continue
        is_batches = each is loader and isinstance(each, (list, tuple))
        parts: Iterable[tuple[str, Any]] = ()
        if type(each) in _PLAIN_CONTAINERS:
            if len(each) <= MOST_ELEMENTS and not is_batches:
                elements = each.items() if type(each) is dict else enumerate(each)
                parts = ((f'[{key!r}]', part) for key, part in elements if not _is_leaf(part))
        else:
            attributes = list(attributes_of(each))
            if isinstance(each, (MethodType, BuiltinFunctionType)):
                attributes = [('__self__', each.__self__), ('__func__', getattr(each, '__func__', None))]
            if not is_batches:
                parts = ((f'.{name}', part) for name, part in attributes if not _is_leaf(part))
        for name, part in parts:
            name = '' if name == '.whole' and isinstance(each, Around) else name
            known = _PARTS.get(name[1:]) if is_of_order is None else is_of_order
            waiting.append((f'{place}{name}', part, True if known is None and isinstance(part, Sampler) else known))
    return Parts(objects, of_order)


def collect_attributes(loader: Any) -> dict[str, Any]:
    """By place, the attributes of the parts of ``loader`` that are values and no objects."""
    found: dict[str, Any] = {}
    for place, each in collect_parts(loader).objects.items():
        if isinstance(each, CONTAINERS) or kind_of(each).is_generator or _is_ours(each) or is_stateful(each):
            continue
        has_epoch = epoch_of(each) is not None
        for name, part in attributes_of(each):
            if kind_of(part).is_value and not (has_epoch and name in _OF_THE_EPOCH):
                found[f'{place}.{name}'] = part
    return found


def epoch_of(each: Any) -> int | None:
    """The epoch that ``set_epoch`` of an object has kept as an attribute; None without one."""
    if not hasattr(each, 'set_epoch'):
        return None
    found = (getattr(each, name, None) for name in _OF_THE_EPOCH)
    return next((epoch for epoch in found if isinstance(epoch, int)), None)


def attributes_of(each: Any) -> Iterator[tuple[str, Any]]:
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
    for cls in type(each).__mro__:
        names = cls.__dict__.get('__slots__', ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ('__dict__', '__weakref__') and hasattr(each, name):
                yield name, getattr(each, name)
        if cls.__module__.partition('.')[0] not in _LIBRARIES:
            for name, part in vars(cls).items():
                if kind_of(part).is_generator:
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
        if kind_of(value).is_generator:
            yield name, value


class Kind(NamedTuple):
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
def _kind_of_class(cls: type) -> Kind:
    is_generator = issubclass(cls, (torch.Generator, random.Random))
    # It takes 7 ms to import numpy.random, and before that there is none of its generators.
    if 'numpy.random' in sys.modules:
        is_generator = is_generator or issubclass(cls, (np.random.Generator, np.random.RandomState))
    is_iterator = hasattr(cls, '__next__') and not is_generator and not issubclass(cls, io.IOBase)
    is_table = hasattr(cls, 'iloc') and hasattr(cls, 'to_csv')
    is_foreign = cls.__module__.partition('.')[0] in _OF_THE_SYSTEM or cls.__module__ in OF_ITERATIONS
    return Kind(
        is_generator,
        is_iterator,
        is_table,
        is_value=issubclass(cls, (*_VALUES, *CONTAINERS)) or is_iterator or is_table,
        is_leaf=issubclass(cls, (*_VALUES, *_LEAVES)) or is_iterator or is_table or is_foreign,
    )


def kind_of(value: Any) -> Kind:
    """What the walk asks of the class of ``value``."""
    return _kind_of_class(type(value))  # type: ignore[arg-type] # mypy thinks that classes have no hash


def _is_leaf(value: Any) -> bool:
    return kind_of(value).is_leaf or _is_of_the_process(value)


def _is_of_the_process(value: Any) -> bool:
    """Whether ``value`` is a generator that belongs to the process, not to a loader."""
    if not kind_of(value).is_generator:
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


def is_generator(value: Any) -> bool:
    """Whether ``value`` is a random generator of torch, Python or numpy."""
    return kind_of(value).is_generator


def _is_ours(each: Any) -> bool:
    return is_ours(type(each).__module__)


def is_stateful(each: Any) -> bool:
    """Whether ``each`` gives its state and takes it back."""
    return callable(getattr(each, 'state_dict', None)) and callable(getattr(each, 'load_state_dict', None))
