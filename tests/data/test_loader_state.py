import io
import random

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, Sampler, Subset

from runnerkit.checkpoint.plain import to_plain
from runnerkit.data import Compose, build_dataloader
from runnerkit.data.loader import SeededLoader
from runnerkit.data.loader_state import (
    RandomStates,
    generator_state,
    held_by,
    held_states,
    is_of_order,
    restore_held,
    set_generator_state,
)
from runnerkit.data.sampler import EpochSampler


def through_a_file(states):
    """What a checkpoint gives back of these states."""
    file = io.BytesIO()
    torch.save(to_plain(states, 'states'), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


# --- where they are found --------------------------------------------------------------------------------------------


class Has:
    """Any attributes."""

    def __init__(self, **attributes):
        vars(self).update(attributes)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index

    def __iter__(self):
        return iter(range(4))

    def __call__(self, batch):
        return batch


class Data(Has, Dataset):
    pass


class Order(Has, Sampler):
    pass


def loader(dataset=None, **options):
    return DataLoader(Data() if dataset is None else dataset, 2, **options)


PLACES = {
    'loader.generator': lambda rng: loader(generator=rng),
    'loader.sampler.rng': lambda rng: loader(sampler=Order(rng=rng)),
    'loader.sampler.generator': lambda rng: loader(sampler=RandomSampler(Data(), generator=rng)),
    'loader.sampler.rng ': lambda rng: build_dataloader(Data(), 2, 0, seed=1, sampler=Order(rng=rng), ranks=(0, 2)),
    'loader.batch_sampler.rng': lambda rng: DataLoader(Data(), batch_sampler=Order(rng=rng)),
    'loader.batch_sampler.sampler.rng': lambda rng: DataLoader(
        Data(), batch_sampler=BatchSampler(Order(rng=rng), 2, False)
    ),
    'loader.batch_sampler.batch_sampler.sampler.rng': lambda rng: SeededLoader(
        Data(), batch_sampler=BatchSampler(Order(rng=rng), 2, False)
    ),
    'loader.dataset._rng': lambda rng: loader(Data(_rng=rng)),
    'loader.dataset.dataset.rng': lambda rng: loader(Subset(Data(rng=rng), [0, 1])),
    'loader.dataset.transform.rng': lambda rng: loader(Data(transform=Has(rng=rng))),
    'loader.dataset.transforms[1].rng': lambda rng: loader(Data(transforms=(len, Has(rng=rng)))),
    'loader.dataset.pipeline.transforms[1].rng': lambda rng: loader(Data(pipeline=Compose([len, Has(rng=rng)]))),
    'loader.collate_fn.rng': lambda rng: loader(collate_fn=Has(rng=rng)),
    'loader.rng': lambda rng: Has(rng=rng),
}


@pytest.mark.parametrize('place', PLACES)
def test_a_generator_is_found_by_its_place_and_put_back(place):
    kind = (lambda seed: torch.Generator().manual_seed(seed)) if 'generator' in place else random.Random
    rng, other = map(kind, (1, 2))
    saved = through_a_file(held_states(PLACES[place](rng)))
    assert list(saved) == [place.strip()]
    assert is_of_order(place) == place.startswith(('loader.generator', 'loader.sampler', 'loader.batch_sampler'))
    draw = (lambda rng: torch.rand(1, generator=rng)) if 'generator' in place else random.Random.random
    expected = draw(rng)
    assert draw(other) != expected
    assert restore_held(PLACES[place](other), saved) == []
    assert draw(other) == expected


@pytest.mark.parametrize(
    'made',
    [
        lambda: loader(Data(net=torch.nn.Dropout(), module=random, kind=random.Random, numbers=[1])),
        lambda: loader(Data(deeper=Has(rng=random.Random(1)))),
        lambda: SeededLoader(Data(), 2, EpochSampler(Data())),
        lambda: [random.Random(1)],
    ],
    ids=['no parts of it', 'deeper', 'our own', 'list of batches'],
)
def test_what_is_not_held(made):
    assert held_states(made()) == {}


def test_a_shared_generator_is_saved_once_and_known_by_each_of_its_places():
    rng = torch.Generator()
    shared = loader(Data(rng=rng), sampler=RandomSampler(Data(), generator=rng), generator=rng)
    assert list(held_states(shared)) == ['loader.generator']
    assert {'loader.sampler.generator', 'loader.dataset.rng'} < held_by(shared).keys()


# --- objects with a state_dict ---------------------------------------------------------------------------------------


class Stateful(Order, Dataset):
    """A sampler, or any other part, that keeps its place itself."""

    def __init__(self):
        self.at = 0

    def state_dict(self):
        return {'at': self.at}

    def load_state_dict(self, state):
        self.at = state['at']


def test_objects_with_a_state_dict_say_their_state_themselves():
    of, other = (loader(Data(source=Stateful())) for _ in range(2))
    of.dataset.source.at = 4
    saved = through_a_file(held_states(of))
    assert saved == {'loader.dataset.source': {'state_dict': {'at': 4}}}
    assert restore_held(other, saved) == []
    assert other.dataset.source.at == 4


def test_a_data_set_that_its_sampler_holds_is_not_of_the_order():
    data = Stateful()
    assert list(held_states(loader(data, sampler=RandomSampler(data)))) == ['loader.dataset']


def test_what_is_gone_is_named_and_what_earlier_versions_saved_as_well_is_left_out():
    states = held_states(loader(Data(rng=random.Random(1), source=Stateful())))
    other = loader(Data(rng=torch.Generator()))
    assert restore_held(other, states) == ['loader.dataset.rng', 'loader.dataset.source']
    assert restore_held([1], states) == ['loader.dataset.rng', 'loader.dataset.source']
    assert restore_held([1], {'loader.at': {'value': 3}, 'loader.dataset': {'epoch': 3}}) == []


def test_the_place_of_an_iteration_of_hugging_face_is_no_state():
    class Place(Stateful):
        def state_dict(self):
            raise RuntimeError('State dict is not initialized')

    Place.__module__ = 'datasets.iterable_dataset'
    assert held_states(DataLoader(Place(), 2)) == {}


def test_a_sampler_in_the_middle_of_a_pass_is_not_given_its_state():
    of = loader(sampler=Stateful())
    of.sampler.at = 4
    saved = held_states(of)
    of.sampler.at = 0
    restore_held(of, saved, pass_is_open=True)
    assert of.sampler.at == 0
    restore_held(of, saved)
    assert of.sampler.at == 4


def test_all_but_the_order_can_be_restored():
    of = loader(Data(rng=random.Random(1)), sampler=Order(rng=random.Random(1)))
    saved = held_states(of)
    first = of.dataset.rng.random(), of.sampler.rng.random()
    restore_held(of, saved, with_order=False)
    assert of.dataset.rng.random() == first[0]
    assert of.sampler.rng.random() != first[1]


def test_a_loader_that_keeps_its_own_place_is_asked_by_its_reader_and_not_here():
    assert held_states(Stateful()) == {}


# --- generators ------------------------------------------------------------------------------------------------------


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


def test_the_process_and_the_loaders_go_on_with_the_states_that_were_kept():
    of = loader(Data(rng=random.Random(1)))
    states = RandomStates([of])
    first = random.random(), of.dataset.rng.random()
    assert states.have_moved()
    with states.restored():
        assert (random.random(), of.dataset.rng.random()) == first
    second = random.random(), of.dataset.rng.random()
    states.restore()
    assert [(random.random(), of.dataset.rng.random()) for _ in range(2)] == [first, second]
