import io
import logging
import random
import tempfile
from collections import deque
from enum import Enum
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from holders import Data, OneSlot, Order
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, Subset

from runnerkit.checkpoint.plain import to_plain
from runnerkit.data.loader import SeededLoader
from runnerkit.data.loader_state import LoaderState, generator_state, same_state
from runnerkit.data.sampler import EpochSampler
from runnerkit.utils.imports import import_object


def through_a_file(states):
    """What a checkpoint gives back of these states."""
    file = io.BytesIO()
    torch.save(to_plain(states, 'states'), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


# --- where they are found --------------------------------------------------------------------------------------------


class OfTheClass(Data):
    rng = random.Random(1)


class Transform:
    def __init__(self, rng):
        self.rng = rng

    def __call__(self, batch):
        return batch

    def collate(self, batch):
        return batch


GLOBAL_RNG = random.Random(1)


def collate_with_a_global(batch):
    return GLOBAL_RNG.random()


class DrawsFromAGlobal(Data):
    def __getitem__(self, index):
        return GLOBAL_RNG.random()


def closing_over(rng):
    def collate(batch):
        return rng, late

    if rng is None:
        late = 1
    return collate


def calling(inner):
    def collate(batch):
        return inner(batch)

    return collate


class ALoader:
    """Of people's own, no DataLoader."""

    def __init__(self, **attributes):
        vars(self).update(attributes)

    def __iter__(self):
        return iter([])


def loader(dataset=None, **options):
    return DataLoader(Data() if dataset is None else dataset, 2, **options)


PLACES = {
    'loader.generator': lambda rng: loader(generator=rng),
    'loader.sampler.rng': lambda rng: loader(sampler=Order(rng=rng)),
    'loader.batch_sampler.rng': lambda rng: DataLoader(Data(), batch_sampler=Order(rng=rng)),
    'loader.batch_sampler.sampler.rng': lambda rng: DataLoader(
        Data(), batch_sampler=BatchSampler(Order(rng=rng), 2, False)
    ),
    'loader.dataset.rng': lambda rng: loader(Data(rng=rng)),
    'loader.dataset._rng': lambda rng: loader(Data(_rng=rng)),
    'loader.dataset.dataset.rng': lambda rng: loader(Subset(Data(rng=rng), [0, 1])),
    'loader.dataset.datasets[1].rng': lambda rng: loader(ConcatDataset([Data(), Data(rng=rng)])),
    'loader.dataset.pipeline[1].rng': lambda rng: loader(Data(pipeline=(1, Transform(rng)))),
    "loader.dataset.by_name['flip'].rng": lambda rng: loader(Data(by_name={'flip': Transform(rng)})),
    "loader.dataset.by_name['flip'][0]": lambda rng: loader(Data(by_name={'flip': [rng]})),
    'loader.dataset.slots.rng': lambda rng: loader(Data(slots=OneSlot(rng))),
    'loader.dataset.transform.func.rng': lambda rng: loader(Data(transform=partial(Transform(rng), [1]))),
    'loader.dataset.transform.__self__': lambda rng: loader(Data(transform=rng.random)),
    'loader.dataset.transform.inner.rng': lambda rng: loader(Data(transform=calling(closing_over(rng)))),
    'loader.collate_fn.rng': lambda rng: loader(collate_fn=closing_over(rng)),
    'loader.collate_fn.__self__.rng': lambda rng: loader(collate_fn=Transform(rng).collate),
    'loader.collate_fn.keywords': lambda rng: None,
    'loader.worker_init_fn.rng': lambda rng: loader(worker_init_fn=closing_over(rng)),
    'loader.rng': lambda rng: ALoader(rng=rng),
    'loader.parts[0].rng': lambda rng: ALoader(parts=[Transform(rng)]),
}
del PLACES['loader.collate_fn.keywords']
PLACES |= {
    "loader.collate_fn.keywords['rng']": lambda rng: loader(collate_fn=partial(len, rng=rng)),
    'loader.collate_fn.args[0]': lambda rng: loader(collate_fn=partial(len, rng)),
    'loader.collate_fn.rng ': lambda rng: loader(collate_fn=Transform(rng)),
}


def generator_at(place):
    """What makes a generator of the kind that may lie there, from a seed."""
    return (lambda seed: torch.Generator().manual_seed(seed)) if place == 'loader.generator' else random.Random


@pytest.mark.parametrize('place', PLACES)
def test_a_generator_is_found_by_its_place_and_put_back(place):
    rng, other = map(generator_at(place), (1, 2))
    state = LoaderState(PLACES[place](rng))
    assert state.generators() == [place.strip()]
    saved = through_a_file(state.states())
    assert set(saved) == {place.strip()}
    assert not same_state(generator_state(other), generator_state(rng))
    assert LoaderState(PLACES[place](other)).restore(saved) == []
    assert same_state(generator_state(other), generator_state(rng))


@pytest.mark.parametrize(
    'made, place',
    [
        (lambda: loader(OfTheClass()), 'loader.dataset.rng'),
        (lambda: loader(DrawsFromAGlobal()), 'loader.dataset.GLOBAL_RNG'),
        (lambda: loader(collate_fn=collate_with_a_global), 'loader.collate_fn.GLOBAL_RNG'),
    ],
    ids=['class', 'global of a method', 'global of a function'],
)
def test_generators_of_classes_and_modules(made, place):
    state = LoaderState(made())
    assert state.generators() == [place]
    saved = state.states()
    rng = OfTheClass.rng if place == 'loader.dataset.rng' else GLOBAL_RNG
    expected = rng.random()
    assert rng.random() != expected
    assert state.restore(saved) == []
    assert rng.random() == expected


@pytest.mark.parametrize(
    'made',
    [
        lambda: loader(Data(a=torch.default_generator, b=random._inst, c=np.random.mtrand._rand)),
        lambda: loader(Data(transform=random.random)),
        lambda: loader(Data(net=torch.nn.Dropout(), module=random, kind=OfTheClass, file=io.BytesIO())),
        lambda: SeededLoader(Data(), 2, EpochSampler(Data())),
        lambda: [random.Random(1)],
        lambda: ALoader(parts=[random.Random(1)] * 1001),
    ],
    ids=[
        'of the process',
        'function of the process',
        'no parts of it',
        'our own',
        'list of batches',
        'large container',
    ],
)
def test_what_is_not_the_loaders_state(made):
    state = LoaderState(made())
    assert (state.generators(), state.states(), state.changed()) == ([], {}, [])


def test_what_our_own_loader_notes_for_itself_is_no_state():
    ours = SeededLoader(Data(rng=random.Random(1)), 2, EpochSampler(Data()))
    state = LoaderState(ours)
    ours.set_epoch(3)
    ours.sampler.start = 2
    next(iter(ours))
    assert (list(state.states()), state.changed()) == (['loader.dataset.rng'], [])


# --- objects with a state_dict ---------------------------------------------------------------------------------------


class Stateful(Order):
    """A sampler, or any other part, that keeps its place itself."""

    def __init__(self):
        self.at = 0

    def state_dict(self):
        return {'at': self.at}

    def load_state_dict(self, state):
        self.at = state['at']


def test_objects_with_a_state_dict_say_their_state_themselves():
    of, other = (loader(Data(source=Stateful())) for _ in range(2))
    state = LoaderState(of)
    of.dataset.source.at = 4
    saved = through_a_file(state.states())
    assert saved == {'loader.dataset.source': {'state_dict': {'at': 4}}}
    assert LoaderState(other).restore(saved) == []
    assert other.dataset.source.at == 4


def test_what_is_gone_is_named():
    state = LoaderState(loader(Data(rng=random.Random(1), source=Stateful()))).states()
    other = loader(Data(rng=torch.Generator()))
    assert LoaderState(other).restore(state) == ['loader.dataset.rng', 'loader.dataset.source']
    assert LoaderState([1]).restore(state) == ['loader.dataset.rng', 'loader.dataset.source']


def test_the_place_of_somebody_elses_iteration_is_no_state():
    """Hugging Face's iterables: what they say is where the last iteration was, and nothing before there was one."""

    class Place:
        def state_dict(self):
            raise RuntimeError('State dict is not initialized')

        def load_state_dict(self, state):
            raise RuntimeError('it would go on there')

    Place.__module__ = 'datasets.iterable_dataset'
    assert LoaderState(DataLoader(Place(), 2)).states() == {}


def test_a_sampler_in_the_middle_of_a_pass_is_not_given_its_state():
    of = loader(sampler=Stateful())
    state = LoaderState(of)
    of.sampler.at = 4
    saved = state.states()
    of.sampler.at = 0
    state.restore(saved, pass_is_open=True)
    assert of.sampler.at == 0
    state.restore(saved)
    assert of.sampler.at == 4


def test_all_but_the_order_can_be_restored():
    of = loader(Data(rng=random.Random(1)), sampler=Order(rng=random.Random(1)))
    state = LoaderState(of)
    saved = state.states()
    of.dataset.rng.random(), of.sampler.rng.random()
    state.restore(saved, with_order=False)
    assert same_state(generator_state(of.dataset.rng), saved['loader.dataset.rng']['generator'])
    assert not same_state(generator_state(of.sampler.rng), saved['loader.sampler.rng']['generator'])


#: Places that a part of the order has, whatever it is called, and that other things have, whatever they are called.
OF_ORDER = {
    'loader.generator': lambda rng: loader(generator=rng),
    'loader.batch_sampler.sampler.rng': PLACES['loader.batch_sampler.sampler.rng'],
    'loader.inner.generator': lambda rng: ALoader(inner=loader(generator=rng)),
    'loader.shuffles.rng': lambda rng: ALoader(shuffles=Order(rng=rng)),
}
OF_SAMPLES = {
    'loader.dataset.sampler.rng': lambda rng: loader(Data(sampler=Order(rng=rng))),
    'loader.dataset.resampler': lambda rng: loader(Data(resampler=rng)),
    'loader.collate_fn.rng': PLACES['loader.collate_fn.rng'],
    'loader.rng': PLACES['loader.rng'],
}


@pytest.mark.parametrize('place', [*OF_ORDER, *OF_SAMPLES])
def test_what_is_of_the_order_follows_from_the_part_that_holds_it(place):
    state = LoaderState({**OF_ORDER, **OF_SAMPLES}[place](torch.Generator()))
    assert state.generators() == [place]
    assert (place in state.of_order()) == (place in OF_ORDER)


def test_a_loader_that_keeps_its_own_place_is_asked_by_its_reader_and_not_here():
    class Loader(Stateful):
        pass

    state = LoaderState(Loader())
    state.loader.at = 3
    assert state.states() == {}


def holding(value):
    return loader(Data(value=value, constant=7))


# --- attributes that change -------------------------------------------------------------------------------------------


def in_itself():
    found = []
    found.append(found)
    return found


class Mode(Enum):
    EASY = 1
    HARD = 2


VALUES = {
    'number': (0, 3),
    'text': ('a', 'b'),
    'other type': (1, True),
    'list': ([], [1, [2, 'x'], (3,)]),
    'dict': ({}, {'a': [1], 2: {'b': None}}),
    'set': ({1}, {1, 2}),
    'tensor': (torch.zeros(2), torch.tensor([0.0, 1.0])),
    'tensor in a dict': ({'a': torch.zeros(2)}, {'a': torch.ones(2)}),
    'array': (np.zeros(2), np.array([0.0, 1.0])),
    "numpy's number": (np.float64(0), np.float64(2)),
    'key of two': ({}, {(1, 'a'): 2, None: 1j}),
}

OTHERS = {
    'live iterator': lambda: iter([1]),
    'queue': lambda: deque([1, 2]),
    'large cache': lambda: dict.fromkeys(range(1001), 'x'),
    'array of objects': lambda: np.array([{}]),
    'objects': lambda: [Transform(1)],
    'frozen set': lambda: frozenset({1}),
    'list in itself': lambda: in_itself(),
    'sparse': lambda: torch.ones(2).to_sparse(),
    'no numbers': lambda: torch.ones(2, device='meta'),
    'member of an enumeration': lambda: Mode.EASY,
    'path': lambda: Path('a'),
}


@pytest.mark.parametrize('name', [*VALUES, *OTHERS])
def test_an_attribute_that_changed_is_named_and_not_saved(name):
    before, after = VALUES[name] if name in VALUES else (None, OTHERS[name]())
    of = holding(before)
    state = LoaderState(of)
    assert state.changed() == []
    of.dataset.value = after
    assert state.changed()[0] == 'loader.dataset.value'
    assert state.states() == {}


def test_a_class_in_a_file_of_the_user_is_not_ours(tmp_path):
    (tmp_path / 'counting.py').write_text(
        'class Counting:\n    count = 0\n    def __init__(self):\n        self.count = 0\n'
        '    def __len__(self):\n        return 9\n    def __getitem__(self, index):\n        return index\n'
    )
    of = loader(import_object(f'{tmp_path}/counting.py:Counting')())
    state = LoaderState(of)
    of.dataset.count = 3
    assert state.changed() == ['loader.dataset.count']


IN_PLACE = {
    'list': ([[1]], lambda value: value[0].append(2)),
    'dict': ({'a': [1]}, lambda value: value['a'].append(2)),
    'set': ({1}, lambda value: value.add(7)),
    'queue': (deque([1, 2]), lambda value: value.rotate()),
    'cache that grows': (dict.fromkeys(range(2000)), lambda value: value.update({-1: None})),
    'tensor': (torch.zeros(2), lambda value: value.add_(1)),
    'large tensor': (torch.zeros(2000), lambda value: value[1500:].add_(1)),
    'large array': (np.zeros(2000), lambda value: value.fill(1)),
    'tensor in a list': ([torch.zeros(2), {1: 2}], lambda value: value[0].add_(1)),
    'number beside a tensor': ([torch.zeros(2), {1: 2}], lambda value: value[1].update({1: 3})),
}


@pytest.mark.parametrize('name', IN_PLACE)
def test_what_changes_in_place_is_named(name):
    value, change = IN_PLACE[name]
    state = LoaderState(holding(value))
    assert state.changed() == []
    change(value)
    assert state.changed() == ['loader.dataset.value']


@pytest.mark.parametrize(
    'made, change',
    [
        (lambda: loader(Data(slots=OneSlot(1))), lambda of: setattr(of.dataset.slots, 'rng', 2)),
        (lambda: loader(collate_fn=Transform(1)), lambda of: setattr(of.collate_fn, 'rng', 2)),
        (lambda: ALoader(at=0), lambda of: setattr(of, 'at', 3)),
        (lambda: loader(Data()), lambda of: setattr(of.dataset, 'new', 3)),
        (lambda: loader(collate_fn=counting()), lambda of: of.collate_fn([])),
    ],
    ids=['slot', 'callable', 'loader', 'new', 'closure'],
)
def test_attributes_elsewhere(made, change):
    of = made()
    state = LoaderState(of)
    assert state.changed() == []
    change(of)
    assert len(state.changed()) == 1


def counting():
    count = 0

    def collate(batch):
        nonlocal count
        count += 1
        return count

    return collate


def test_live_iterators_are_named_from_the_first():
    assert LoaderState(holding(iter([1]))).changed() == ['loader.dataset.value']


def test_the_epoch_that_set_epoch_sets_has_not_changed():
    class OfEpoch(Order):
        def set_epoch(self, epoch):
            self.epoch = epoch

    of = loader(sampler=OfEpoch(epoch=0, draws=0))
    state = LoaderState(of)
    of.sampler.set_epoch(3)
    assert state.changed() == []
    of.sampler.draws = 1
    assert state.changed() == ['loader.sampler.draws']


def test_attributes_in_files_of_earlier_versions_are_left_out():
    of = holding(0)
    earlier = {'loader.dataset.value': {'value': 3}, 'loader.gone': {'array': torch.ones(1), 'scalar': False}}
    assert LoaderState(of).restore(earlier) == []
    assert of.dataset.value == 0


def test_what_objects_of_the_standard_library_note_for_themselves_is_no_state():
    path, log = Path('a'), logging.getLogger('test_loader_state')
    of = loader(Data(path=path, log=log))
    state = LoaderState(of)
    assert isinstance(hash(path), int), path.parts
    log.debug('this notes whether it is enabled')
    assert (state.states(), state.changed()) == ({}, [])


def test_tables():
    pandas = pytest.importorskip('pandas')
    table = pandas.DataFrame({'a': range(500), 'b': ['x', 'y'] * 250})
    of = loader(Data(table=table, column=table['a'], rng=random.Random(1)))
    state = LoaderState(of)
    assert table['a'].iloc[3] == of.dataset.column[3] == 3  # what this fills is a cache
    assert len(table[table['b'] == 'x']) == 250
    assert (state.generators(), state.changed()) == (['loader.dataset.rng'], [])
    of.dataset.table = table.sample(frac=1, random_state=1)
    assert state.changed() == ['loader.dataset.table']


def test_a_flag_beside_a_file_that_is_opened_late_is_no_change():
    of = loader(Data(file=None, is_open=False, index=None))
    state = LoaderState(of)
    with tempfile.TemporaryFile() as of.dataset.file:
        of.dataset.is_open = True
        assert (state.states(), state.changed()) == ({}, [])


# --- states ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    'one, other, expected',
    [
        (1, 1, True),
        (1, 2, False),
        (1, True, False),
        (1, 1.0, False),
        ((1, [2]), (1, [2]), True),
        ([1], [1, 2], False),
        ({'a': torch.ones(2)}, {'a': torch.ones(2)}, True),
        ({'a': torch.ones(2)}, {'a': torch.zeros(2)}, False),
        ({'a': 1}, {'a': 1, 'b': 2}, False),
        (torch.ones(1), 1.0, False),
        (1.0, torch.ones(1), False),
        ({1}, {1}, True),
        (np.ones(2), np.ones(2), True),
        (np.ones(2), np.zeros(2), False),
        (np.ones(2), np.ones(2, 'float32'), False),
        (np.ones(2), np.ones(3), False),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), True),
        (torch.tensor([1.0, np.nan]), torch.tensor([1.0, np.nan]), True),
        (torch.tensor([1.0, np.nan]), torch.tensor([np.nan, 1.0]), False),
        (float('nan'), float('nan'), True),
    ],
)
def test_equal_states(one, other, expected):
    assert same_state(one, other) is expected


class Curriculum(Data):
    """A data set whose epoch the user's code sets, since readers set those of samplers and streams only."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch


def test_an_epoch_that_only_the_users_code_sets_is_restored():
    loader, other = DataLoader(Curriculum()), DataLoader(Curriculum())
    state = LoaderState(loader)
    loader.dataset.set_epoch(3)
    assert state.changed() == []
    resumed = LoaderState(other)
    assert resumed.restore(through_a_file(state.states())) == []
    assert other.dataset.epoch == 3
    assert resumed.changed() == []
