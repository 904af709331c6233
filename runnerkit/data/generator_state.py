"""The states of random generators of torch, Python and numpy, as tensors and plain values."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from runnerkit.data.walk import collect_parts, kind_of
from runnerkit.utils.seed import rng_state, same_rng_state, set_rng_state


class RandomStates:
    """The states, now, of the process's generators and of those that ``loaders`` hold."""

    def __init__(self, loaders: Iterable[Any]) -> None:
        self._loaders = list(loaders)
        #: Of the process's generators.
        self.rng = rng_state()
        parts = [each for loader in self._loaders for each in collect_parts(loader).objects.values()]
        self._held = [(each, generator_state(each)) for each in parts if kind_of(each).is_generator]

    def restore(self) -> None:
        """Give all of them these states."""
        set_rng_state(self.rng)
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
        return not same_rng_state(self.rng, rng_state())


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
