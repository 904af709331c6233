import io
import random
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from support import end_at_once
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from runnerkit.checkpoint.plain import to_plain
from runnerkit.data import build_dataloader
from runnerkit.data.kinds import describe_loader, doubts_about, order_of
from runnerkit.data.loader import SeededLoader
from runnerkit.data.loader_state import batch_checksums
from runnerkit.data.permutation import BLOCK
from runnerkit.data.reader import IterLoader, Reader, ReaderState, SkippedSampler, epoch_batches, new_iter_loaders
from runnerkit.data.sampler import EpochSampler, epoch_order
from runnerkit.utils.seed import rng_state, set_rng_state
from runnerkit.utils.user_files import module_of_file

noisy = module_of_file(str(Path(__file__).with_name('noisy_datasets.py')))

BATCHES = 3  # a pass


# --- kinds of loaders ------------------------------------------------------------------------------------------------


def gen(seed=8):
    return torch.Generator().manual_seed(seed)


def pure():
    return TensorDataset(torch.arange(6.0))


class Draws(Dataset):
    """Samples with a draw of a generator of its own, and one of the process's."""

    def __init__(self, rng):
        self.rng = rng

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.tensor([index, self.rng.random(), random.random()])


class Lazy(Sampler):
    """Draws index by index."""

    def __init__(self, rng=None):
        self.rng = rng

    def __len__(self):
        return 6

    def __iter__(self):
        for _ in range(6):
            yield int(torch.randint(6, ())) if self.rng is None else self.rng.randrange(6)


class CountsEpochs(Sampler):
    """Has another order in each pass, by a number of its own."""

    def __init__(self):
        self.passes = 0

    def __len__(self):
        return 6

    def __iter__(self):
        self.passes += 1
        return iter(random.Random(self.passes).sample(range(6), 6))


class CountsPasses(EpochSampler):
    """A subclass of ours, with another order in each pass by a state that checkpoints hold."""

    passes = 0

    def begin(self, epoch):
        self.passes += 1

    def indices(self, epoch, places):
        order = random.Random(self.passes).sample(range(self.length), self.length)
        return [order[place % self.length] for place in places]

    def state_dict(self):
        return {'passes': self.passes}

    def load_state_dict(self, state):
        self.passes = state['passes']


class Reads:
    """A loader of people's own, with a generator; ``draws`` from the process's as well."""

    def __init__(self, draws=False):
        self.draws = draws
        self.rng = np.random.default_rng(3)

    def __len__(self):
        return BATCHES

    def __iter__(self):
        for number in range(BATCHES):
            yield torch.tensor([number, self.rng.random(), random.random() if self.draws else 0])


class Keeps:
    """A loader that keeps its place itself, and a batch of each pass is told from the others."""

    def __init__(self):
        self.at = 0

    def __len__(self):
        return BATCHES

    def __iter__(self):
        while True:
            self.at += 1
            yield torch.tensor(self.at)
            if self.at % BATCHES == 0:
                return

    def state_dict(self):
        return {'at': self.at}

    def load_state_dict(self, state):
        self.at = state['at']


class Stream(IterableDataset):
    def __len__(self):
        return 6

    def __iter__(self):
        return (torch.tensor(number) for number in range(6))


EXACT = {
    'ours': lambda: build_dataloader(noisy.Forgetful(6), 2, 0, seed=3),
    'ours, not seeded': lambda: build_dataloader(noisy.Forgetful(6), 2, 0, seed=3, seeded=False),
    'ours, not shuffled': lambda: build_dataloader(noisy.Forgetful(6), 2, 0, seed=3, shuffle=False),
    'ours, with a generator in the data': lambda: build_dataloader(Draws(random.Random(1)), 2, 0, seed=3),
    'ours, over a sampler': lambda: SeededLoader(pure(), 2, RandomSampler(pure(), generator=gen())),
    'ours, over a lazy sampler': lambda: SeededLoader(pure(), 2, Lazy()),
    'ours, over a lazy sampler with a generator': lambda: SeededLoader(pure(), 2, Lazy(random.Random(1))),
    'ours, over a batch sampler': lambda: build_dataloader(
        noisy.Forgetful(6), 2, 0, seed=3, batch_sampler=BatchSampler(RandomSampler(range(6)), 2, False)
    ),
    'a stream of ours': lambda: SeededLoader(noisy.NoisyStream(6), 2, seed=3),
    'in order': lambda: DataLoader(noisy.Forgetful(6), 2),
    'shuffled': lambda: DataLoader(noisy.Forgetful(6), 2, shuffle=True),
    'shuffled with a generator': lambda: DataLoader(noisy.Forgetful(6), 2, shuffle=True, generator=gen()),
    'sampler with a generator': lambda: DataLoader(pure(), 2, sampler=RandomSampler(pure(), generator=gen())),
    'weighted sampler': lambda: DataLoader(pure(), 2, sampler=WeightedRandomSampler([1.0] * 6, 6)),
    'distributed sampler': lambda: DataLoader(pure(), 2, sampler=DistributedSampler(pure(), 1, 0)),
    'our sampler in a DataLoader': lambda: DataLoader(pure(), 2, sampler=EpochSampler(pure(), seed=3)),
    'a sampler of ours with a state': lambda: DataLoader(pure(), 2, sampler=CountsPasses(pure())),
    'lazy sampler with a generator': lambda: DataLoader(pure(), 2, sampler=Lazy(random.Random(1))),
    'batch sampler': lambda: DataLoader(pure(), batch_sampler=BatchSampler(RandomSampler(pure()), 2, False)),
    'batch sampler with a generator': lambda: DataLoader(
        pure(), batch_sampler=BatchSampler(RandomSampler(pure(), generator=gen()), 2, False)
    ),
    'no batches': lambda: DataLoader(pure().tensors[0][:3], batch_size=None, shuffle=True, generator=gen()),
    'data with a generator': lambda: DataLoader(Draws(random.Random(1)), 2, shuffle=True),
    "data with numpy's generator": lambda: DataLoader(Draws(np.random.default_rng(1)), 2, shuffle=True),
    'list': lambda: [torch.tensor(number) for number in range(BATCHES)],
    'loader with a generator': Reads,
    'loader with a state': Keeps,
    'iterable data set': lambda: DataLoader(Stream(), 2),
}

if find_spec('torchdata') is not None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    EXACT.update(
        {
            "torchdata's, shuffled": lambda: StatefulDataLoader(pure(), 2, shuffle=True, generator=gen()),
            "torchdata's, over our sampler": lambda: StatefulDataLoader(pure(), 2, sampler=EpochSampler(pure())),
            "torchdata's, over an iterable data set": lambda: StatefulDataLoader(Stream(), 2),
        }
    )


#: Of these, that they are exact is not known; they are.
READ_AGAIN = ['lazy sampler with a generator', 'loader with a generator', 'iterable data set']

# --- runs ------------------------------------------------------------------------------------------------------------


def through_a_file(state):
    """What a checkpoint gives back."""
    file = io.BytesIO()
    torch.save(to_plain(state, 'state'), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def seed(number):
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


class ByEpoch:
    """A run over a loader like those of the epoch runner: it reads, and draws, as dropout does."""

    TOTAL = 3 * BATCHES

    def __init__(self, loader):
        self.reader = Reader(loader)
        self.done = 0

    def run(self, until, is_over=True):
        """Read up to so many batches in all; ``is_over``: leave a pass that is then complete."""
        found = []
        while self.done < until:
            for batch in self.reader.batches(self.done // BATCHES):
                torch.rand(1), random.random(), np.random.rand()
                found.append(batch)
                self.done += 1
                if self.done == until:
                    break
            if self.done < until or (is_over and self.done % BATCHES == 0):
                self.reader.exhaust()
                self.reader.close()
        return found

    def inside(self):
        return self.done % BATCHES

    def state_dict(self):
        inside = self.inside() or (BATCHES if self.reader.is_open else 0)
        return self.reader.state_dict(inside - self.reader.left_out)

    def resume(self, loader, state, rng):
        """The same run in another process, at the same place."""
        other = type(self)(loader)
        other.done = self.done
        other.found = other.reader.load_state_dict(state)
        rest = other.reader.batches(state['epoch']) if other.reader.is_to_enter else None
        other.reader.restore_held(ReaderState.of(state))
        set_rng_state(rng)
        if state['batches'] == BATCHES:
            assert list(rest) == []
            other.reader.close()
        return other


class ByIteration(ByEpoch):
    """A run over a loader like those of the iteration runner."""

    def __init__(self, loader):
        self.reader = IterLoader(loader)
        self.done = 0

    def run(self, until, is_over=True):
        if not self.reader.is_open:  # the pass begins some draws before its first batch is read
            self.reader.start()
            torch.rand(3), random.random(), np.random.rand()
        found = []
        for self.done in range(self.done + 1, until + 1):
            found.append(next(self.reader))
            torch.rand(1), random.random(), np.random.rand()
        return found

    def state_dict(self):
        return self.reader.state_dict()

    def resume(self, loader, state, rng):
        other = type(self)(loader)
        other.done = self.done
        other.found = other.reader.load_state_dict(state)
        other.reader.start()
        other.reader.restore_held(ReaderState.of(state))
        set_rng_state(rng)
        return other


def checksums(batches):
    return [batch_checksums(batch) for batch in batches]


def interrupted(kind, make, moment, is_over=True):
    """The batches of a run that was left and entered at ``moment``, and what may not be exact."""
    seed(1)
    run = kind(make())
    first = run.run(moment, is_over)
    state, rng = through_a_file([run.state_dict(), rng_state()])
    seed(2)
    resumed = run.resume(make(), state, rng)
    return checksums(first + resumed.run(kind.TOTAL)), resumed.found


def undisturbed(kind, make):
    seed(1)
    return checksums(kind(make()).run(kind.TOTAL))


MOMENTS = [*((moment, True) for moment in range(8)), (3, False), (6, False)]


@pytest.mark.filterwarnings('ignore:This DataLoader')
@pytest.mark.parametrize('name', EXACT)
@pytest.mark.parametrize('kind', [ByEpoch, ByIteration])
def test_a_pass_is_left_and_entered_anywhere(kind, name):
    expected = undisturbed(kind, EXACT[name])
    assert len(expected) == kind.TOTAL
    for moment, is_over in MOMENTS if kind is ByEpoch else [(moment, True) for moment in range(8)]:
        found, texts = interrupted(kind, EXACT[name], moment, is_over)
        assert found == expected, (moment, is_over)
        assert len(texts) <= (name in READ_AGAIN), (moment, is_over)


TWICE = ['ours', 'ours, over a batch sampler', 'shuffled with a generator', 'list', 'loader with a generator']


@pytest.mark.parametrize('name', TWICE)
@pytest.mark.parametrize('kind', [ByEpoch, ByIteration])
def test_a_pass_is_left_and_entered_twice(kind, name):
    expected = undisturbed(kind, EXACT[name])
    seed(1)
    run = kind(EXACT[name]())
    found = run.run(4)
    for until in (5, kind.TOTAL):
        state, rng = through_a_file([run.state_dict(), rng_state()])
        seed(2)
        run = run.resume(EXACT[name](), state, rng)
        found += run.run(until)
    assert checksums(found) == expected


INEXACT = {
    'a sampler that counts': (lambda: DataLoader(pure(), 2, sampler=CountsEpochs()), 'draws the order of CountsEpochs'),
    'one in a batch sampler': (
        lambda: DataLoader(pure(), batch_sampler=BatchSampler(CountsEpochs(), 2, False)),
        'draws the order of CountsEpochs again',
    ),
    'a lazy sampler': (lambda: DataLoader(pure(), 1, sampler=Lazy()), 'draws the order of Lazy again'),
    'a loader with draws': (lambda: Reads(draws=True), 'loads the batches of an open epoch again'),
    'a stream': (lambda: DataLoader(Stream(), 2), 'loads the batches of an open epoch again'),
}


@pytest.mark.parametrize('moment', [2, 3])
@pytest.mark.parametrize('name', INEXACT)
@pytest.mark.parametrize('kind', [ByEpoch, ByIteration])
def test_what_may_not_be_exact_is_told_once_also_between_two_passes(kind, name, moment):
    make, text = INEXACT[name]
    _, (found,) = interrupted(kind, make, moment)
    assert text in found
    assert found.startswith(describe_loader(make()) + ': ')
    assert Reader(make()).load(ReaderState.at(make(), 0, 0)) == []


def test_what_is_gone_is_told():
    state = Reader(DataLoader(Draws(random.Random(1)), 2)).state_dict()
    reader = Reader(DataLoader(pure(), 2))
    assert reader.load_state_dict(state) == [
        'DataLoader of TensorDataset: the checkpoint has state for loader.dataset.rng, which the loader no longer has'
    ]


# --- a batch that waits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    'make, told',
    [
        (lambda: build_dataloader(noisy.Forgetful(6), 2, 0, seed=3), False),
        (lambda: build_dataloader(Draws(random.Random(1)), 2, 0, seed=3), True),
        (lambda: DataLoader(pure(), 2, shuffle=True, generator=gen()), False),
        (lambda: DataLoader(noisy.Forgetful(6), 2), True),
        (lambda: DataLoader(pure(), 2, sampler=EpochSampler(pure(), seed=3)), False),
        (lambda: DataLoader(pure(), batch_size=None, shuffle=True, generator=gen()), False),
        (lambda: DataLoader(pure(), 2, sampler=Lazy()), True),
        (lambda: [torch.tensor(number) for number in range(BATCHES)], False),
    ],
    ids=[
        'ours',
        'ours with a generator',
        'pure',
        'noisy',
        'our sampler',
        'no batches',
        'lazy sampler',
        'list',
    ],
)
def test_a_batch_that_waits_is_fetched_again(make, told):
    seed(1)
    whole = checksums(Reader(make()).batches(0))
    seed(1)
    reader = Reader(make())
    batches = reader.batches(0)
    next(batches), next(batches)  # one was trained on, the other waits
    state, rng = through_a_file([reader.state_dict(1, waits=True), rng_state()])
    other = Reader(make())
    assert [any('is fetched again' in text for text in other.load_state_dict(state))] == [told]
    rest = other.batches(0)
    other.restore_held(ReaderState.of(state))
    set_rng_state(rng)
    found = checksums(rest)
    assert len(found) == len(whole) - 1
    assert told or found == whole[1:]


def test_the_order_of_a_batch_that_waits_is_drawn_again():
    whole = checksums(DataLoader(pure(), 2, sampler=Lazy(random.Random(1))))
    reader = Reader(DataLoader(pure(), 2, sampler=Lazy(random.Random(1))))
    batches = reader.batches(0)
    next(batches), next(batches)
    state = through_a_file(reader.state_dict(1, waits=True))
    other = Reader(DataLoader(pure(), 2, sampler=Lazy(random.Random(1))))
    other.load_state_dict(state)
    rest = other.batches(0)
    other.restore_held(ReaderState.of(state))
    assert checksums(rest) == whole[1:]


@pytest.mark.parametrize('kind', [Reader, IterLoader])
@pytest.mark.parametrize(
    'make',
    [
        lambda: DataLoader(pure(), 2, shuffle=True),
        lambda: DataLoader(pure(), 2, sampler=WeightedRandomSampler([1] * 6, 6)),
    ],
    ids=['shuffled', 'weighted'],
)
def test_the_order_of_a_first_batch_that_waits_is_the_same_however_often_it_is_resumed(make, kind):
    """Samplers of torch draw from the process's generator when the first batch is fetched."""

    def begin(reader):
        batches = reader.batches(0)
        return batches if kind is Reader else reader

    seed(1)
    reader = kind(make())
    batches = begin(reader)
    if kind is IterLoader:
        torch.rand(1)  # it is read later, and a hook may draw in between
    first = next(batches)
    for _ in range(2):
        state, rng = through_a_file([reader.state_dict(0, waits=True), rng_state()])
        seed(9)
        reader = kind(make())
        reader.load_state_dict(state)
        batches = begin(reader)
        reader.restore_held(ReaderState.of(state))
        set_rng_state(rng)
        assert torch.equal(next(batches)[0], first[0])


@pytest.mark.parametrize('workers', [0, 1])
def test_a_shuffled_order_that_began_before_other_draws_is_exact_and_quiet(workers):
    """As where the iteration runner begins the pass of a second loader before the first batch of this one."""

    def begin():
        reader = IterLoader(DataLoader(pure(), 2, shuffle=True, num_workers=workers))
        seed(1)
        return reader

    reader = begin()
    reader.start()
    torch.rand(1)
    next(reader), next(reader), torch.rand(1)  # the last as of dropout
    state, rng = through_a_file([reader.state_dict(), rng_state()])
    other = begin()
    assert other.load_state_dict(state) == []
    other.start()
    assert torch.equal(next(other)[0], next(reader)[0])


# --- other numbers of ranks ------------------------------------------------------------------------------------------


def rank_loaders(world_size, batch_size, length, workers=0, **options):
    return [
        build_dataloader(list(range(length)), batch_size, workers, seed=3, ranks=(rank, world_size), **options)
        for rank in range(world_size)
    ]


def train(readers, steps):
    """All ranks read so many batches, or to the end; returns all samples, and the steps that they made."""
    passes = [reader.batches(1) for reader in readers]
    seen, done = [], 0
    for _ in range(steps):
        batches = [next(each, None) for each in passes]
        if all(batch is None for batch in batches):
            break
        assert all(batch is not None for batch in batches)  # no rank waits for another
        seen += torch.cat(batches).tolist()
        done += 1
    return seen, done


LENGTHS = [1, 2, 7, 12, 23]


@pytest.mark.parametrize('drop_last', [False, True])
@pytest.mark.parametrize('length', LENGTHS)
def test_an_open_epoch_goes_on_with_any_number_of_ranks(length, drop_last):
    for before, now, steps in [(w, v, n) for w in range(1, 6) for v in range(1, 6) for n in (1, 2)]:
        batch_size = 1 + 2 * ((before + now) % 2)
        if drop_last and length < max(before, now) * batch_size:
            continue  # no batches at all
        old = [Reader(each) for each in rank_loaders(before, batch_size, length, drop_last=drop_last)]
        seen, done = train(old, steps)
        states = [each.state_dict(done) for each in old]
        is_over = done * batch_size >= len(old[0].dataloader.sampler)
        begins = max(length, len(seen)) if is_over else len(seen)
        assert {state['samples'] for state in states} == {begins}  # every rank knows what all have consumed
        new = [Reader(each) for each in rank_loaders(now, batch_size, length, drop_last=drop_last)]
        for reader in new:
            assert reader.load_state_dict(states[0]) == []
        (left,) = {reader.batches_left(ReaderState.of(states[0])) for reader in new}
        rest, done = train(new, 100)
        assert done == left
        open_part = max(0, length - begins)
        if drop_last:
            assert len(set(seen + rest)) == len(seen + rest)
            assert len(rest) == open_part // (now * batch_size) * now * batch_size
        else:
            assert set(seen + rest) == set(range(length))
            assert len(rest) == -(-open_part // now) * now


@pytest.mark.parametrize('world_size', [1, 3])
@pytest.mark.parametrize('batch_size', [1, 2, 5])
def test_an_open_epoch_goes_on_in_batches_of_another_size(world_size, batch_size):
    old = [Reader(each) for each in rank_loaders(world_size, 2, 23)]
    seen, done = train(old, 2)
    state = old[0].state_dict(done)
    new = [Reader(each) for each in rank_loaders(world_size, batch_size, 23)]
    for reader in new:
        reader.load_state_dict(state)
    rest, _ = train(new, 100)
    assert set(seen + rest) == set(range(23))
    assert len(seen + rest) == -(-23 // world_size) * world_size


def test_a_second_change_of_ranks_in_one_epoch():
    seen, state = [], None
    for world_size, steps in [(2, 2), (3, 1), (1, 4), (4, 100)]:
        readers = [Reader(each) for each in rank_loaders(world_size, 2, 40)]
        if state is not None:
            for reader in readers:
                reader.load_state_dict(state)
        more, done = train(readers, steps)
        seen += more
        state = readers[0].state_dict(done)
        assert state['samples'] == len(seen)
    assert sorted(seen[:40]) == list(range(40))
    assert len(seen) == 42  # the last four ranks share 18


@pytest.mark.parametrize('now', [1, 2, 3])
@pytest.mark.parametrize('workers', [0, 2])
def test_a_computed_order_goes_on_where_it_was_left(now, workers):
    order = epoch_order(2 * BLOCK, 3, 1, order='feistel').tolist()
    computed = {'sampler': {'type': 'EpochSampler', 'order': 'feistel'}}
    old = [Reader(each) for each in rank_loaders(2, 100, 2 * BLOCK, **computed)]
    seen, done = train(old, 7)
    assert sorted(seen) == sorted(order[:1400])
    state = old[0].state_dict(done)
    rest = []
    for reader in map(Reader, rank_loaders(now, 100, 2 * BLOCK, workers, **computed)):
        assert reader.load_state_dict(state) == []
        rest.append(torch.cat([*reader.batches(1)]).tolist())
    whole = (order + order)[1400 : 1400 + now * len(rest[0])]
    assert rest == [whole[rank::now] for rank in range(now)]


def resumed(state, length=40, **options):
    """A reader of a new run that goes on with ``state``, what may not be exact, and what it reads of the open pass and
    the next one."""
    (loader,) = rank_loaders(1, 4, length, **options)
    reader = Reader(loader)
    texts = reader.load_state_dict(state)
    return reader, texts, [torch.cat([*reader.batches(epoch)]).tolist() for epoch in (1, 2)]


def test_a_resumed_run_keeps_the_order_that_its_checkpoint_was_saved_with(monkeypatch, caplog):
    caplog.set_level('INFO', 'runnerkit')
    computed = {'sampler': {'type': 'EpochSampler', 'order': 'feistel'}}
    for kind, options in (('randperm', {}), ('feistel', computed)):
        (loader,) = rank_loaders(1, 4, 40, **options)
        order = [epoch_order(40, 3, epoch, order=kind).tolist() for epoch in (1, 2)]
        reader = Reader(loader)
        seen, done = train([reader], 3)
        states = [reader.state_dict(done)]
        if kind == 'randperm':  # as it was saved before there was another order
            states.append({**states[0], 'about': {k: v for k, v in states[0]['about'].items() if k != 'order'}})
        for state in states:
            for large in (10, 100):  # the threshold of the new run, which would choose each of the two
                monkeypatch.setattr('runnerkit.data.sampler.LARGE', large)
                caplog.clear()
                reader, texts, read = resumed(state)
                assert [seen + read[0], read[1]] == order
                assert (f'shuffled by {kind!r} as before' in caplog.text) == ((kind == 'randperm') == (large == 10))
                assert reader.state_dict()['about']['order'] == kind  # a third run keeps it, too
                assert texts == []
        monkeypatch.undo()


def test_data_of_another_length_have_no_order_to_keep(monkeypatch):
    (loader,) = rank_loaders(1, 4, 40)
    reader = Reader(loader)
    _, done = train([reader], 3)
    monkeypatch.setattr('runnerkit.data.sampler.LARGE', 10)
    *_, (_, whole) = resumed(reader.state_dict(done), 48)
    assert whole == epoch_order(48, 3, 2, order='feistel').tolist()


def test_an_order_of_a_later_version_is_told():
    (loader,) = rank_loaders(1, 4, 40)
    reader = Reader(loader)
    _, done = train([reader], 3)
    state = reader.state_dict(done)
    _, texts, (_, whole) = resumed({**state, 'about': {**state['about'], 'order': 'swap-or-not'}})
    assert whole == epoch_order(40, 3, 2).tolist()
    assert "shuffled by 'swap-or-not', which is unknown to this version" in texts[0]


def test_the_next_epoch_is_whole():
    reader = Reader(rank_loaders(1, 2, 6)[0])
    reader.load(ReaderState.at(reader.dataloader, 0, 2))
    assert len(list(reader.batches(0))) == 1
    assert len(list(reader.begin(0))) == 3
    reader.close()
    assert len(list(reader.batches(1))) == 3
    assert reader.samples(2) == 4


def test_samples_of_loaders_whose_shares_are_their_own_are_not_known():
    reader = Reader(DataLoader(pure(), 2, shuffle=True))
    next(reader.batches(0))
    assert reader.state_dict(1)['samples'] is None
    assert reader.batches_left(ReaderState(batches=1)) == 2
    assert Reader(iter([])).batches_left(ReaderState(batches=1)) is None


# --- a runner's reader -----------------------------------------------------------------------------------------------


def test_an_open_pass_goes_on_and_another_epoch_begins_anew():
    reader = Reader([1, 2, 3])
    batches = reader.batches(0)
    assert not Reader([]).is_open
    assert next(batches) == 1
    assert (reader.is_open, reader.epoch) == (True, 0)
    assert list(reader.batches(0)) == [2, 3]
    assert list(reader.batches(1)) == [1, 2, 3]
    reader.close()
    assert (reader.is_open, reader.left_out) == (False, 0)


def test_a_pass_that_is_to_be_entered_is_saved_as_it_was():
    loader = [1, 2, 3]
    reader = Reader(loader)
    state = ReaderState.at(loader, 2, 2)
    reader.load(state)
    assert reader.is_to_enter
    assert reader.state() == state
    assert list(reader.batches(2)) == [3]
    assert (reader.is_to_enter, reader.left_out, reader.epoch) == (False, 2, 2)


def test_a_loop_of_somebody_elses_is_primed():
    loader = SeededLoader(pure(), 2, EpochSampler(pure(), seed=3))
    reader = Reader(loader)
    assert reader.prime()
    reader.load(ReaderState.at(loader, 0, 2))
    whole = checksums(loader)
    assert reader.prime()
    assert checksums(loader) == whole[2:]
    other = Reader([1, 2])
    other.load(ReaderState.at([1, 2], 0, 1))
    assert not other.prime()


def test_a_loader_is_let_come_to_its_end():
    ended = []

    class Ends(SequentialSampler):
        def __iter__(self):
            yield from super().__iter__()
            ended.append(True)

    reader = Reader(DataLoader(pure(), 2, sampler=Ends(pure())))
    batches = reader.batches(0)
    next(batches), next(batches), next(batches)
    reader.exhaust()
    assert ended == [True]
    early = Reader([1, 2])
    next(early.batches(0))
    early.exhaust()
    assert list(early.batches(0)) == [2]


@pytest.mark.parametrize(
    'loader, text',
    [
        ([1], None),
        (SeededLoader(noisy.Forgetful(6), 2), None),
        (DataLoader(noisy.Forgetful(6), 2), None),
        (DataLoader(pure(), 2, num_workers=1), None),
        (Keeps(), None),
        (Reads(), 'loads the batches of an open epoch again'),
        (DataLoader(Stream(), 2), 'loads the batches of an open epoch again'),
        (
            DataLoader(noisy.Forgetful(6), 2, num_workers=1),
            'that Forgetful or collate_fn draw in workers',
        ),
        (DataLoader(pure(), 2, num_workers=1, collate_fn=len), 'draw in workers'),
    ],
)
def test_doubts_at_the_first_start(loader, text):
    doubts = doubts_about(loader)
    assert [text in each for each in doubts] == ([] if text is None else [True])


@pytest.mark.parametrize('make', [lambda: DataLoader(pure(), 2, shuffle=True), Reads])
def test_a_pass_that_has_begun_and_given_nothing_yet(make):
    """The second loader of a workflow, begun when the run began, and first read after a resume."""

    def run(stops):
        seed(1)
        reader = IterLoader(make())
        reader.start()
        torch.rand(1), random.random()
        if stops:
            state, rng = through_a_file([reader.state_dict(), rng_state()])
            seed(2)
            reader = IterLoader(make())
            reader.load_state_dict(state)
            reader.start()
            reader.restore_held(ReaderState.of(state))
            set_rng_state(rng)
        torch.rand(1)
        return checksums(next(reader) for _ in range(5))

    assert run(True) == run(False)


# --- the batches of an epoch -----------------------------------------------------------------------------------------


def indices(batches):
    return [index.tolist() for index, _ in batches]


@pytest.fixture
def dataset():
    return noisy.Noisy(10)


@pytest.mark.parametrize('start', [0, 2])
def test_our_own_loader_enters(dataset, start):
    loader = SeededLoader(dataset, 3, EpochSampler(dataset))
    loader.set_epoch(1)
    whole = indices(loader)
    loader.set_epoch(0)
    dataset.asked.clear()
    assert indices(epoch_batches(loader, 1, start)) == whole[start:]
    assert dataset.asked == sum(whole[start:], [])


@pytest.mark.parametrize('workers', [0, 2])
def test_a_users_loader_skips_indices(dataset, workers):
    sampler = DistributedSampler(dataset, num_replicas=2, rank=1)
    loader = DataLoader(dataset, 2, sampler=sampler, num_workers=workers)
    sampler.set_epoch(3)
    whole = indices(loader)
    sampler.set_epoch(0)
    dataset.asked.clear()
    # Recorded and not made errors: the workers inherit the filters.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        entered = indices(epoch_batches(loader, 3, 1))
    assert caught == []
    assert entered == whole[1:]
    assert sampler.epoch == 3
    if workers == 0:
        assert dataset.asked == sum(whole[1:], [])
    assert indices(loader) == whole
    assert indices(epoch_batches(loader, 3, 7)) == []


def test_a_users_random_sampler_with_its_generator(dataset):
    def loader():
        return DataLoader(dataset, 3, sampler=RandomSampler(dataset, generator=gen()))

    assert indices(epoch_batches(loader(), 0, 2)) == indices(loader())[2:]


def test_a_users_loader_keeps_its_options(dataset):
    loader = DataLoader(
        dataset, 5, collate_fn=noisy.mixup, num_workers=1, prefetch_factor=3, persistent_workers=True, timeout=60
    )
    (batch,) = epoch_batches(loader, 0, 1)
    assert batch.shape == (5, 6)


def test_a_users_loader_without_batches(dataset):
    loader = DataLoader(dataset, batch_size=None)
    assert [int(index) for index, _ in epoch_batches(loader, 0, 7)] == [7, 8, 9]
    assert dataset.asked == [7, 8, 9]


class Own(DataLoader):
    """Iterates in a way of its own, so its batch sampler is not all there is."""

    def __iter__(self):
        return iter(range(4))


@pytest.mark.parametrize(
    ('loader', 'rest', 'warns'),
    [
        ([10, 11, 12, 13], [12, 13], False),
        (Own(noisy.Noisy()), [2, 3], True),
        (DataLoader(noisy.NoisyStream(8), 2, collate_fn=len), [2, 2], True),
        (SeededLoader(noisy.NoisyStream(8), 2, collate_fn=len), [2, 2], True),
    ],
    ids=['list', 'subclass', 'stream', 'seeded stream'],
)
def test_others_are_read_again_with_one_warning(loader, rest, warns, caplog):
    assert list(epoch_batches(loader, 0, 2)) == rest
    caplog.clear()
    assert len(list(epoch_batches(loader, 0))) == 4
    assert caplog.messages == []


@pytest.mark.parametrize('loader', [[1, 2], Reads()])
def test_starting_behind_the_end(loader):
    assert list(epoch_batches(loader, 0, 5)) == []


def test_negative_start():
    with pytest.raises(ValueError, match='start must be .* at least 0, but got -1'):
        epoch_batches([], 0, -1)


class KeepsByEpoch(Keeps):
    """One whose shuffling follows from the epoch."""

    def __init__(self):
        super().__init__()
        self.told = []

    def set_epoch(self, epoch):
        self.told.append(epoch)


@pytest.mark.parametrize('kind', [Reader, IterLoader])
def test_a_loader_that_keeps_its_place_is_told_the_epoch_where_a_pass_begins_and_where_it_is_entered(kind):
    reader = kind(KeepsByEpoch())
    batches = reader.begin(3)
    assert int(next(reader if kind is IterLoader else batches)) == 1
    assert reader.dataloader.told == [3]
    other = kind(KeepsByEpoch())
    other.load_state_dict(reader.state_dict(1))
    assert int(next(iter(other.batches(3)))) == 2
    assert other.dataloader.told == [3]


@pytest.mark.parametrize('persistent', [False, True])
def test_workers_of_a_dropped_reader_end_by_themselves(persistent, monkeypatch):
    loader = DataLoader(range(100), 2, num_workers=2, persistent_workers=persistent)
    reader = Reader(loader)
    batches = reader.batches(0)
    next(batches)
    workers = list(batches._workers)
    cycle = [reader, loader]
    cycle.append(cycle)
    del batches, loader, reader, cycle
    assert end_at_once(workers, monkeypatch)


# --- the state of a reader -------------------------------------------------------------------------------------------


def test_a_file_that_lacks_fields_gives_their_defaults_and_others_are_left_out():
    state = ReaderState.of({'epoch': 3, 'begun': True, 'batches': 2, 'checksums': {}})
    assert state == ReaderState(epoch=3, begun=True, batches=2)


def test_a_place_is_known_in_samples_where_the_order_is_ours():
    ours = build_dataloader(list(range(10)), 2, 0, dist=False, seed=1)
    at = ReaderState.at(ours, 1, 3)
    assert (at.epoch, at.begun, at.batches, at.samples) == (1, True, 3, 6)
    assert ReaderState(batches=4).position_in(order_of(ours)) == 8
    assert ReaderState(batches=4, samples=5).position_in(order_of(ours)) == 5
    shared = SeededLoader(list(range(20)), 2, EpochSampler(range(20), world_size=3))
    assert ReaderState(batches=2).position_in(order_of(shared)) == 12
    assert ReaderState.at([1, 2], 1, 1).samples is None
    at.begin_anew()
    assert (at.epoch, at.begun, at.batches, at.samples) == (1, False, 0, 0)


def test_a_sampler_without_its_first_items():
    rest = SkippedSampler(range(5), 2)
    assert (list(rest), list(rest)) == ([2, 3, 4], [2, 3, 4])
    assert list(SkippedSampler(range(5), 9)) == []


# --- an endless one --------------------------------------------------------------------------------------------------


def test_it_knows_its_pass_and_place():
    reader = IterLoader([1, 2])
    assert (len(reader), reader.epoch, reader.position) == (2, 0, 0)
    found = [(next(reader), reader.epoch, reader.position) for _ in range(5)]
    assert found == [(1, 0, 1), (2, 0, 2), (1, 1, 1), (2, 1, 2), (1, 2, 1)]


def test_without_batches():
    with pytest.raises(ValueError, match='gives no batches'):
        next(IterLoader([]))


def test_it_tells_its_samplers_the_epoch():
    sampler = DistributedSampler(range(6), 1, 0)
    reader = IterLoader(DataLoader(range(6), 3, sampler=sampler))
    epochs = []
    for _ in range(5):
        next(reader)
        epochs.append(sampler.epoch)
    assert epochs == [0, 0, 1, 1, 2]


def test_loaders_that_nobody_has_begun():
    former = IterLoader([0])
    one, other = IterLoader([1]), IterLoader([2])
    assert new_iter_loaders(since=former.number) == [one, other]
    next(one)
    assert new_iter_loaders(since=former.number) == [other]


def test_a_batch_that_is_given_back_comes_next():
    loader = IterLoader([1, 2, 3])
    given = [next(loader), next(loader)]
    loader.give_back(given[1])
    assert loader.position == 1
    assert [next(loader), next(loader), next(loader)] == [2, 3, 1]
    assert loader.epoch == 1
