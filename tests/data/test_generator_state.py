import io
import random

import numpy as np
import pytest
import torch

from runnerkit.data.generator_state import generator_state, set_generator_state


def through_a_file(state):
    """What a checkpoint gives back."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def normals(generator):
    """Some draws; an odd number of normals, of which two are made at a time."""
    if isinstance(generator, torch.Generator):
        return torch.randn(3, generator=generator).tolist()
    if isinstance(generator, random.Random):
        return [generator.random(), generator.gauss(0, 1)]
    if isinstance(generator, np.random.RandomState):
        return generator.randn(3).tolist()
    return [*generator.standard_normal(3).tolist(), int(generator.integers(5, dtype=np.int32))]


GENERATORS = {
    'torch': lambda seed: torch.Generator().manual_seed(seed),
    'random': random.Random,
    'PCG64': np.random.default_rng,
    'MT19937': lambda seed: np.random.Generator(np.random.MT19937(seed)),
    'Philox': lambda seed: np.random.Generator(np.random.Philox(seed)),
    'SFC64': lambda seed: np.random.Generator(np.random.SFC64(seed)),
    'RandomState': np.random.RandomState,
}


@pytest.mark.parametrize('kind', GENERATORS)
def test_a_generator_comes_back_from_a_file(kind):
    generator, other = GENERATORS[kind](1), GENERATORS[kind](2)
    normals(generator)
    state = through_a_file(generator_state(generator))
    expected = [normals(generator), normals(generator)]
    assert normals(other) != expected[0]
    assert set_generator_state(other, state)
    assert [normals(other), normals(other)] == expected


@pytest.mark.parametrize(
    'of, to',
    [('torch', 'random'), ('random', 'PCG64'), ('PCG64', 'MT19937'), ('PCG64', 'torch'), ('MT19937', 'random')],
)
def test_a_generator_of_another_kind_is_left_alone(of, to):
    generator = GENERATORS[to](1)
    assert not set_generator_state(generator, generator_state(GENERATORS[of](2)))
    assert normals(generator) == normals(GENERATORS[to](1))
