"""What a checkpoint holds of a loader: random generators, and objects with a ``state_dict``.

They are looked for in the loader, its samplers, its data set, the transforms of that and the collate function, and in
the attributes of these; not deeper.
"""

from __future__ import annotations

import random
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from runnerkit.data.kinds import inner_sampler, is_stateful, is_unbounded
from runnerkit.data.loader import SeededLoader
from runnerkit.utils.seed import rng_state, same_rng_state, set_rng_state

#: At most about so many numbers of each tensor are looked at, spread evenly over all of it.
_LOOKED_AT = 16384


def batch_checksums(batch: Any) -> dict[str, int]:
    """A CRC-32 for each tensor, array, number and text in ``batch``, by its place."""
    return dict(_checksums('batch', batch))


def _checksums(place: str, value: Any) -> Iterator[tuple[str, int]]:
    if isinstance(value, Tensor):
        has_numbers = value.layout is torch.strided and not (value.is_nested or value.is_meta or value.is_inference())
        if type(value) is Tensor and has_numbers:
            flat = value.detach().resolve_conj().resolve_neg().reshape(-1)
            some = flat[:: max(1, len(flat) // _LOOKED_AT)].cpu().contiguous()
            raw = some.view(torch.uint8).numpy().tobytes() if len(some) else b''
            yield place, zlib.crc32(raw, _of_text(f'{tuple(value.shape)} {value.dtype}'))
    elif isinstance(value, np.ndarray):
        if value.dtype != object:
            numbers = value.reshape(-1)
            part = np.ascontiguousarray(numbers[:: max(1, len(numbers) // _LOOKED_AT)])
            yield place, zlib.crc32(part.tobytes(), _of_text(f'{value.shape} {value.dtype}'))
    elif isinstance(value, (bool, int, float, complex, str, bytes, np.generic)):
        yield place, _of_text(repr(value))
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _checksums(f'{place}[{key!r}]', each)
    elif isinstance(value, (list, tuple)):
        for i, each in enumerate(value[:1000]):
            yield from _checksums(f'{place}[{i}]', each)
    elif hasattr(value, 'data') and hasattr(value, 'cpu_only'):  # a DataContainer
        yield from _checksums(f'{place}.data', value.data)


def _of_text(text: str) -> int:
    return zlib.crc32(text.encode())


#: The places of what makes the order of the samples.
_OF_ORDER = ('loader.generator', 'loader.sampler', 'loader.batch_sampler')

#: What data sets call their transforms.
_TRANSFORMS = ('transform', 'transforms', 'target_transform', 'pipeline')

#: Objects of this module of Hugging Face say where their last iteration was, and fail before there was one.
_OF_ITERATIONS = 'datasets.iterable_dataset'


# --- in a loader -----------------------------------------------------------------------------------------------------


def held_by(loader: Any) -> dict[str, Any]:
    """The generators in ``loader``, and the objects with a ``state_dict``, by their places, such as
    ``loader.dataset.rng``."""
    parts = [] if is_unbounded(loader) else list(_loader_and_samplers(loader))
    held = {place: part for place, part in parts if part is not loader and _has_state(part)}
    for place, part in parts:
        for name, value in getattr(part, '__dict__', {}).items():
            # What seeds the workers of our own loader is no state; torch's iterators are not taken back.
            is_own = isinstance(part, SeededLoader) and name == 'generator'
            is_state = _has_state(value) and not isinstance(part, DataLoader)
            if (is_generator(value) and not is_own) or is_state:
                held[f'{place}.{name}'] = value
    return held


def _loader_and_samplers(loader: Any) -> Iterator[tuple[str, Any]]:
    yield 'loader', loader
    for name in ('sampler', 'batch_sampler'):
        place, sampler = f'loader.{name}', getattr(loader, name, None)
        while sampler is not None:
            yield place, sampler
            inner, sampler = inner_sampler(sampler)
            place = place if inner == 'whole' else f'{place}.{inner}'  # of `Shares`, which has no state itself
    dataset = getattr(loader, 'dataset', None)
    yield 'loader.dataset', dataset
    yield 'loader.dataset.dataset', getattr(dataset, 'dataset', None)  # of a Subset
    for name in _TRANSFORMS:
        place, transform = f'loader.dataset.{name}', getattr(dataset, name, None)
        yield place, transform
        if (composed := getattr(transform, 'transforms', None)) is not None:
            place, transform = f'{place}.transforms', composed
        if isinstance(transform, (list, tuple)):
            yield from ((f'{place}[{number}]', each) for number, each in enumerate(transform))
    yield 'loader.collate_fn', getattr(loader, 'collate_fn', None)


def _has_state(value: Any) -> bool:
    if isinstance(value, (nn.Module, type)) or type(value).__module__ == _OF_ITERATIONS:
        return False
    return is_stateful(value)


def is_of_order(place: str) -> bool:
    """Whether what lies at ``place`` makes the order of the samples."""
    return place.startswith(_OF_ORDER)


def held_states(loader: Any) -> dict[str, Any]:
    """The states of all that is `held_by` the loader, by place; of one that is held twice, at its first place."""
    states: dict[int, tuple[str, Any]] = {}
    for place, value in held_by(loader).items():
        if id(value) not in states:
            kind = 'generator' if is_generator(value) else 'state_dict'
            states[id(value)] = place, {kind: generator_state(value) if kind == 'generator' else value.state_dict()}
    return dict(states.values())


def restore_held(
    loader: Any, states: Mapping[str, Any], pass_is_open: bool = False, with_order: bool = True
) -> list[str]:
    """Restore what `held_states` returned, into this loader or one that is built alike. Returns the places that no
    longer exist, or hold something else.

    With ``pass_is_open``, samplers with a ``state_dict`` are left alone: a state that they get in the middle of a pass
    is often meant for the next one. Without ``with_order``, all that makes the order of the samples is.
    """
    held, missing = held_by(loader), []
    for place, state in states.items():
        is_order = is_of_order(place)
        # Earlier versions also saved other kinds of states.
        if not (state.keys() & {'generator', 'state_dict'}) or (is_order and not with_order):
            continue
        if place not in held:
            missing.append(place)
        elif 'generator' in state:
            if not set_generator_state(held[place], state['generator']):
                missing.append(place)
        elif not (pass_is_open and is_order):
            held[place].load_state_dict(state['state_dict'])
    return missing


# --- generators ------------------------------------------------------------------------------------------------------


class RandomStates:
    """The states, now, of the process's generators and of those that ``loaders`` hold."""

    def __init__(self, loaders: Iterable[Any]) -> None:
        self._loaders = list(loaders)
        self._rng = rng_state()
        values = [value for loader in self._loaders for value in held_by(loader).values()]
        self._held = [(value, generator_state(value)) for value in values if is_generator(value)]

    def restore(self) -> None:
        """Give all of them these states."""
        set_rng_state(self._rng)
        for generator, state in self._held:
            set_generator_state(generator, state)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """In it, the generators have these states; afterwards, those that they have now."""
        now = RandomStates(self._loaders)
        self.restore()
        try:
            yield
        finally:
            now.restore()

    def have_moved(self) -> bool:
        """Whether the process's generators, CUDA's aside, have other states now."""
        return not same_rng_state(self._rng, rng_state())


def is_generator(value: Any) -> bool:
    """Whether ``value`` is a random generator of torch, Python or numpy."""
    if isinstance(value, (torch.Generator, random.Random)):
        return True
    # It takes 7 ms to import numpy.random, and before that there is none of its generators.
    return 'numpy.random' in sys.modules and isinstance(value, (np.random.Generator, np.random.RandomState))


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
            generator.set_state(_arrays_restored(state['numpy']))
        else:
            generator.bit_generator.state = _arrays_restored(state['numpy'])
    except (KeyError, ValueError, TypeError, AttributeError):
        return False
    return True


def _plain_arrays(state: Any) -> Any:
    if isinstance(state, np.ndarray):
        return {'dtype': str(state.dtype), 'words': torch.from_numpy(state.astype(np.int64))}
    return {key: _plain_arrays(each) for key, each in state.items()} if isinstance(state, Mapping) else state


def _arrays_restored(state: Any) -> Any:
    if not isinstance(state, Mapping):
        return state
    if set(state) == {'dtype', 'words'}:
        return state['words'].cpu().numpy().astype(state['dtype'])
    return {key: _arrays_restored(each) for key, each in state.items()}
