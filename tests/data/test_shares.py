"""Samplers that know of no ranks are shared out, and ranks that train on streams of unequal length keep in step."""

import logging
import random
import time
from itertools import chain, count, islice

import numpy as np
import pytest
import torch
from support import EndsEarly, Logged, Tiny, thinned, tiny_runner
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from runnerkit.data import build_dataloader
from runnerkit.data.kinds import may_have_unequal_lengths, set_epoch
from runnerkit.data.loader import SeededLoader
from runnerkit.data.reader import Reader
from runnerkit.data.sampler import EpochSampler
from runnerkit.data.shares import each_sample_once, first_items, until_shortest_rank
from runnerkit.distributed import get_dist_info
from runnerkit.hooks import Hook
from runnerkit.parallel import MMDistributedDataParallel
from runnerkit.utils.exceptions import ToldByFirstRank

LENGTH = 22
DATA = range(LENGTH)


class Plain:
    """A user's sampler: a permutation of the process's generators, drawn index by index."""

    def __init__(self, length=LENGTH):
        self.length = length

    def __len__(self):
        return self.length

    def __iter__(self):
        for i in range(self.length):
            yield (i * 7 + int(torch.randint(3, ())) + random.randrange(3) + np.random.randint(3)) % self.length


class Held(Plain):
    """Draws from a generator of its own."""

    def __init__(self, make=np.random.default_rng):
        super().__init__()
        self.rng = make()

    def __iter__(self):
        return iter(self.rng.permutation(self.length).tolist())


class Endless(Plain):
    __len__ = None

    def __iter__(self):
        return (random.randrange(self.length) for _ in count())


class Epochs(Plain):
    """Goes by the epoch that it is told."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter([(i + self.epoch) % self.length for i in range(self.length)])


class Pairs(Plain):
    """A batch sampler: batches of two and three."""

    def __len__(self):
        return 9

    def __iter__(self):
        order = iter(torch.randperm(self.length).tolist())
        return (list(islice(order, 2 + i % 2)) for i in range(9))


class OwnRanks(Plain):
    """As many of MMCV's: it asks for the rank when it is iterated over."""

    def __len__(self):
        return self.length // get_dist_info()[1]

    def __iter__(self):
        rank, world_size = get_dist_info()
        return iter(range(rank, self.length, world_size))


class WithoutLength(OwnRanks):
    def __len__(self):
        raise NotImplementedError


class ByGroups(OwnRanks):
    """As MMCV's DistributedGroupSampler: each group is padded, so that the shares hold more than all samples."""

    def __len__(self):
        return 16

    def __iter__(self):
        rank, world_size = get_dist_info()
        groups = [[*range(13), 0, 1, 2], [*range(13, LENGTH), *range(13, 20)]]
        return iter([i for group in groups for i in group[rank::world_size]])


class Resetting(OwnRanks):
    """Its own iterator, which begins again."""

    def __iter__(self):
        self.rest = super().__iter__()
        return self

    def __next__(self):
        return next(self.rest)


class HeldPairs(Held):
    """A batch sampler without a ``batch_size``, whose generator is seeded by chance."""

    def __len__(self):
        return 11

    def __iter__(self):
        return iter(self.rng.permutation(LENGTH).reshape(11, 2).tolist())


class Declared(Held):
    """Says that its share is its own."""

    def __init__(self):
        super().__init__()
        self.rank, self.world_size = get_dist_info()

    def __len__(self):
        return 11


class Alike(Declared):
    """Says so too, but for one rank."""

    def __init__(self):
        Held.__init__(self, lambda: np.random.default_rng(3))
        self.rank, self.world_size = 0, 1


def weighted(**options):
    return WeightedRandomSampler([1.0] * LENGTH, LENGTH, **options)


SHARED = {
    'weighted': lambda: {'sampler': weighted()},
    'weighted, config': lambda: {
        'sampler': {'type': 'WeightedRandomSampler', 'weights': [1.0] * LENGTH, 'num_samples': LENGTH}
    },
    'random': lambda: {'sampler': RandomSampler(DATA)},
    'subset': lambda: {'sampler': SubsetRandomSampler(DATA)},
    'plain': lambda: {'sampler': Plain()},
    'own generator': lambda: {'sampler': Held(lambda: np.random.default_rng(3))},
    'epochs': lambda: {'sampler': Epochs()},
    "torch's batches": lambda: {'batch_sampler': BatchSampler(RandomSampler(DATA), 2, False)},
    'batches': lambda: {'batch_sampler': Pairs()},
    'batches, config': lambda: {
        'sampler': Plain(),
        'batch_sampler': {'type': 'BatchSampler', 'drop_last': False},
    },
}


def loaders(make, world_size, workers=0, **options):
    return [
        build_dataloader(DATA, 2, workers, seed=3, ranks=(rank, world_size), **make(), **options)
        for rank in range(world_size)
    ]


def samples(loader, epoch=0):
    set_epoch(loader, epoch)
    return [i for batch in loader for i in batch.tolist()]


def in_order(shares):
    """The order of which these are the shares, one item for each rank in turn."""
    whole = chain.from_iterable(zip(*shares, strict=False))
    longest = min(map(len, shares))
    return [*whole, *(share[longest] for share in shares if len(share) > longest)]


@pytest.mark.parametrize('seeded', [True, False])
@pytest.mark.parametrize('make', SHARED.values(), ids=SHARED)
def test_each_sample_of_the_order_goes_to_one_rank_and_no_stream_of_the_run_moves(make, seeded):
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    options = {'round_up': False, 'seeded': seeded}
    shares = [samples(loader, 1) for loader in loaders(make, 3, **options)]
    if seeded:
        assert torch.equal(states[0], torch.get_rng_state()), 'torch'
    assert states[1:] == (random.getstate(), np.random.get_state()[1].tolist())
    assert shares[0] != shares[1]
    lengths = [len(loader.batch_sampler) for loader in loaders(make, 3, **options)]
    assert lengths == [len(list(loader.batch_sampler)) for loader in loaders(make, 3, **options)]
    again = [samples(loader, 1) for loader in loaders(make, 3, **options)]
    assert shares == again
    if 'batch_sampler' not in make():
        assert len(sum(shares, [])) == LENGTH
        assert in_order(shares) == in_order([samples(loader, 1) for loader in loaders(make, 2, **options)])
    elif not isinstance(make()['batch_sampler'], dict):
        assert sorted(sum(shares, [])) == list(DATA)


def test_the_reviews_case_halves_the_epoch():
    make = SHARED['weighted, config']
    one, two = loaders(make, 1)[0], loaders(make, 2)
    assert [len(loader) for loader in (one, *two)] == [11, 6, 6]
    assert samples(one) == in_order([samples(loader) for loader in two])[:LENGTH]


@pytest.mark.parametrize('make', [SHARED['weighted'], SHARED['plain']])
def test_ranks_get_equally_much_in_training(make):
    rounded = [samples(loader) for loader in loaders(make, 4)]
    order = in_order([samples(loader) for loader in loaders(make, 4, round_up=False)])
    assert list(map(len, rounded)) == [6] * 4
    assert in_order(rounded) == order + order[:2]
    dropped = [samples(loader) for loader in loaders(make, 4, drop_last=True)]
    assert list(map(len, dropped)) == [4] * 4  # five for each, of which one fills no batch
    assert in_order(dropped) == order[:16]


@pytest.mark.parametrize('make', [SHARED['weighted'], SHARED['plain'], SHARED['batches']])
def test_an_evaluation_on_a_loader_for_training_has_each_sample_once(make):
    rounded = loaders(make, 4)

    def once(loader):
        with each_sample_once(loader):
            return samples(loader)

    shares = [samples(loader) for loader in loaders(make, 4, round_up=False)]
    assert [once(loader) for loader in rounded] == shares
    assert [len(loader) for loader in rounded] == [len(loaders(make, 4)[0])] * 4


def test_fewer_samples_than_ranks():
    shares = [samples(loader) for loader in loaders(lambda: {'sampler': Epochs(3)}, 8)]
    assert shares == [[0], [1], [2], [0], [1], [2], [0], [1]]


def test_an_endless_sampler_is_shared_out_too():
    first, second = (iter(loader) for loader in loaders(lambda: {'sampler': Endless()}, 2))
    mine, others = ([next(batches).tolist() for _ in range(40)] for batches in (first, second))
    assert mine != others
    with pytest.raises(TypeError):
        len(loaders(lambda: {'sampler': Endless()}, 2)[0])
    limited = loaders(lambda: {'sampler': Endless()}, 2, max_batches=3)
    assert [[batch.tolist() for batch in loader] for loader in limited] == [mine[:3], others[:3]]


def test_the_users_sampler_is_told_the_epoch_whatever_is_around_it():
    for options in ({}, {'max_batches': 4}, {'seeded': False}):
        first = loaders(lambda: {'sampler': Epochs()}, 2, **options)[0]
        Reader(first).begin(5)
        assert next(iter(first.batch_sampler))[0] == 5
        assert first.sampler.length == LENGTH if not options else True  # the user's attributes


@thinned(make=[SHARED['weighted'], SHARED['plain'], SHARED['own generator'], SHARED['batches']], workers=[0, 2])
def test_a_pass_is_left_and_entered_anywhere(make, workers):
    def reader():
        return Reader(loaders(make, 2, workers)[1])

    whole = reader()
    for epoch in range(2):
        before, expected = whole.state_dict(), [batch.tolist() for batch in whole.begin(epoch)]
        whole.close()
    for place in (1, 3):
        first, second = reader(), reader()
        first.load_state_dict(before)
        batches = first.begin(1)
        for _ in range(place):
            next(batches)
        assert second.load_state_dict(first.state_dict(place)) == []
        rest = [batch.tolist() for batch in second.batches(1)]
        assert rest == expected[place:]


def test_passes_over_torchs_sampler_may_be_interleaved():
    loader = loaders(SHARED['weighted, config'], 1)[0]
    expected = [samples(loader, epoch) for epoch in (0, 1)]
    assert expected[0] != expected[1]
    set_epoch(loader, 0)
    first = iter(loader)
    found = [next(first).tolist()]
    set_epoch(loader, 1)  # as an evaluation on the training loader does, inside an epoch
    second = [i for batch in loader for i in batch.tolist()]
    found += [batch.tolist() for batch in first]
    assert [sum(found, []), second] == expected


def test_a_generator_goes_on_with_other_numbers_of_ranks():
    make = SHARED['own generator']
    for before, after in ((2, 1), (1, 2)):
        first = Reader(loaders(make, before)[0])
        list(first.begin(0)), first.close()
        expected = Held(lambda: np.random.default_rng(3))
        list(expected), (order := list(expected))
        readers = [Reader(loader) for loader in loaders(make, after)]
        for reader in readers:
            assert reader.load_state_dict(first.state_dict()) == []
        found = [[i for batch in reader.begin(1) for i in batch.tolist()] for reader in readers]
        assert in_order(found) == order, (before, after)


def test_a_pass_over_torchs_sampler_is_entered_by_other_numbers_of_ranks():
    make = SHARED['weighted, config']
    order = samples(loaders(make, 1)[0])
    for before, after in ((1, 2), (2, 1), (2, 4), (4, 2)):
        reader = Reader(loaders(make, before)[0])
        batches = reader.begin(0)
        for _ in range(8 // before // 2):
            next(batches)
        state = reader.state_dict(8 // before // 2)
        shares = []
        for loader in loaders(make, after, round_up=False):
            other = Reader(loader)
            other.load_state_dict(state)
            shares.append([i for batch in other.batches(0) for i in batch.tolist()])
        assert in_order(shares) == order[8:], (before, after)


def test_what_a_long_sampler_gives_is_estimated_and_a_sampler_that_is_looked_at_does_not_move():
    sampler = Held(lambda: np.random.default_rng(3))
    sampler.length = 5000
    assert [samples for _, samples in first_items(sampler)] == [5000]
    assert [samples for _, samples in first_items(BatchSampler(sampler, 4, False))] == [5000]
    expected = Held(lambda: np.random.default_rng(3))
    expected.length = 5000
    assert list(sampler) == list(expected)


# --- on real ranks ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def ranks(on_ranks):
    first, second = on_ranks(__file__, 'streams_of_rank')
    return {name: (first[name], second[name]) for name in first}


class Seen(Hook):
    def __init__(self):
        self.seen = []

    def before_train_iter(self, runner):
        self.seen += runner.data_batch[0][:, 0].int().tolist()


class Trained(Tiny):
    def train_step(self, data, optimizer, **kwargs):
        return super().train_step((data[0][:, 1:5].float(), data[0][:, :1].float()), optimizer)


def trains(loader, kind, **limits):
    runner, hook = tiny_runner(kind, model=MMDistributedDataParallel(Trained()), **limits), Seen()
    runner.register_optimizer_hook({})
    runner.register_hook(hook)
    runner.run([loader], [('train', 1)])
    return hook.seen


def of_ranks(rank):
    """What the loaders of this rank give, and what is told of them."""
    logging.getLogger('runnerkit').setLevel(logging.INFO)
    with Logged() as told:
        return logged_of_ranks(rank, told)


def logged_of_ranks(rank, told):
    torch.manual_seed(rank)
    found = {}
    makers = {
        'shared': Plain,
        'entropy': Held,
        'one process': Alike,
        'own ranks': OwnRanks,
        'declared': Declared,
        'weighted by rank': lambda: weighted(generator=torch.Generator().manual_seed(rank)),
        'own half': lambda: WeightedRandomSampler([1.0] * LENGTH, 11, generator=torch.Generator().manual_seed(rank)),
        'iterator': lambda: iter(DATA),
        'no length': WithoutLength,
        'groups': ByGroups,
        'resetting': Resetting,
        'batches': HeldPairs,
        "torch's": lambda: DistributedSampler(DATA, 2, rank, shuffle=False),
    }
    for name, make in makers.items():
        told.clear()
        which = 'batch_sampler' if name == 'batches' else 'sampler'
        loader = build_dataloader(DATA, 2, 0, seed=3, **{which: make()})
        found[name] = [i for batch in loader for i in batch.tolist()], told.lines
    told.clear()
    data = TensorDataset(torch.arange(24)[:, None].expand(-1, 5))
    by_epoch = trains(build_dataloader(data, 2, 0, seed=3, sampler=Plain(24)), 'epoch', max_epochs=2)
    by_iter = trains(build_dataloader(data, 2, 0, seed=3, sampler=Plain(24)), 'iter', max_iters=12)
    found['trained'] = by_epoch, by_iter, told.lines
    for name, sampler in (('user', Plain()), ("torch's", None), ('shared', DistributedSampler(data))):
        told.clear()
        trains(DataLoader(data, 2, sampler=sampler, shuffle=sampler is None), 'epoch', max_epochs=1)
        found['plain', name] = (told.lines,)
    return found


def test_ranks_compare_what_their_samplers_give(ranks):
    first, second = ranks['compared']

    def shares(name):
        return first[name][0], second[name][0]

    def told(name):
        assert not second[name][-1]
        return '\n'.join(first[name][-1])

    for name in ('shared', 'entropy', 'one process', 'weighted by rank', 'iterator'):
        assert list(map(len, shares(name))) == [11, 11], name
    for name in ('entropy', 'one process', 'iterator'):
        assert sorted(sum(shares(name), [])) == list(DATA), name
    assert told('shared') == ('INFO Plain gives every process the same items, so each process takes its share of them')
    assert 'WARNING Held: its generators (loader.rng) differ between ranks' in told('entropy')
    assert 'WARNING WeightedRandomSampler: its generators (loader.generator) differ' in told('weighted by rank')
    for name in ('iterator', 'resetting'):  # which nobody can look at without moving it
        assert 'holds a live iterator' in told(name)
        assert told(name).startswith('WARNING'), name

    for name in ('no length', 'groups'):
        assert 'not shared out again' in told(name)
        assert told(name).startswith('INFO'), name
    assert shares('no length') == shares('own ranks')
    assert sorted(sum(shares('batches'), [])) == sorted([*DATA, *first['batches'][0][:2]])
    assert 'HeldPairs: its generators' in told('batches')

    assert shares('own ranks') == (list(DATA)[::2], list(DATA)[1::2])
    assert 'INFO OwnRanks gives each rank other indices' in told('own ranks')
    assert list(map(len, shares('own half'))) == [11, 11]
    assert 'INFO WeightedRandomSampler gives each rank other indices' in told('own half')
    assert told('declared') == told("torch's") == ''

    by_epoch, by_iter = ([each['trained'][i] for each in (first, second)] for i in (0, 1))
    assert [len(seen) for seen in by_epoch] == [24, 24]
    assert by_epoch[0] != by_epoch[1]
    assert by_iter == by_epoch
    assert 'does not shard. Each' not in told('trained')

    for name in ('user', "torch's"):
        assert 'its sampler does not shard. Each of the 2 ranks reads all' in told(('plain', name)), name
        assert told(('plain', name)).count('does not shard') == 1
    assert 'does not shard' not in told(('plain', 'shared'))


# --- ranks in step ---------------------------------------------------------------------------------------------------


class Stream(IterableDataset):
    """So many samples, numbered from ``start``."""

    def __init__(self, length, start=0):
        self.length, self.start = length, start

    def __iter__(self):
        for i in range(self.length):
            yield torch.full((4,), float(self.start + i)), torch.zeros(1)


class Sized(Stream):
    def __len__(self):
        return self.length


class Unsized:
    """A loader of somebody else's, without a length."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


class Passes(Hook):
    """Counts what passes, as a hook with a schedule does."""

    def __init__(self):
        self.iters, self.max_iters = [], []

    def after_train_epoch(self, runner):
        self.iters.append(runner.completed_iters)
        self.max_iters.append(runner.max_iters)


def trained_in_step(kind, loader, **limits):
    """How a run over ``loader`` has gone: what the hooks saw, what was trained on, and what was told."""
    model, hook = MMDistributedDataParallel(Tiny()), Passes()
    runner = tiny_runner(kind, model=model, **limits)
    runner.register_optimizer_hook({})
    runner.register_hook(hook)
    try:
        with Logged(logging.WARNING) as told:
            runner.run([loader], [('train', 1)])
    except (ValueError, ToldByFirstRank) as error:
        return str(error)
    weight = float(sum(p.detach().double().sum() for p in model.parameters()))
    return hook.iters, hook.max_iters, runner.epoch, len(model.module.losses), weight, told.texts


def streams_of_rank(rank):
    share = 100 * rank
    plain = [[torch.full((2, 4), float(i)), torch.zeros(2, 1)] for i in range(2 + rank)]
    return {
        'compared': of_ranks(rank),  # first: on other ranks, a runner raises the level of the log
        'epochs': trained_in_step('epoch', build_dataloader(Stream(10 - 4 * rank, share), 2, 0), max_epochs=2),
        'with a worker': trained_in_step(
            'epoch', build_dataloader(Stream(6 + 4 * rank, share), 2, 1, multiprocessing_context='fork'), max_epochs=2
        ),
        'iterations': trained_in_step('iter', build_dataloader(Stream(10 - 4 * rank, share), 2, 0), max_iters=8),
        'equal': trained_in_step('epoch', build_dataloader(Stream(4, share), 2, 0), max_epochs=1),
        'sized': trained_in_step('epoch', build_dataloader(Sized(10 - 4 * rank, share), 2, 0), max_epochs=2),
        'wrongly sized': trained_in_step('epoch', build_dataloader(Lies(4 - 2 * rank, share), 2, 0), max_epochs=1),
        'sized, of torch': trained_in_step('epoch', DataLoader(Sized(10 - 4 * rank, share), 2), max_epochs=2),
        'lists': trained_in_step('iter', plain, max_iters=2),
        'samples': trained_in_step('epoch', build_dataloader(list(Stream(8 + 4 * rank)), 2, 0), max_epochs=1),
        'sized or not': trained_in_step('epoch', plain if rank else Unsized(plain), max_epochs=2),
        'plain': trained_in_step('epoch', Unsized(plain), max_epochs=1),
        'unshared': trained_in_step('epoch', build_dataloader(Stream(4), 2, 0), max_epochs=2),
        'empty': trained_in_step('epoch', build_dataloader(Stream(4 * rank), 2, 0), max_epochs=1),
        'empty, by iteration': trained_in_step('iter', build_dataloader(Stream(4 * rank), 2, 0), max_iters=1),
        'evaluated': evaluated(build_dataloader(Stream(4), 2, 0)),
        'ends early': ends_on_the_second_rank(rank),
    }


class Lies(Stream):
    def __len__(self):
        return 4


def evaluated(loader):
    runner = tiny_runner(max_epochs=1)
    with Logged(logging.WARNING) as told:
        for _ in range(2):
            runner.evaluate(loader)
    return told.texts


@pytest.mark.parametrize(
    'name, iters, max_iters, first_ended',
    [
        ('epochs', [3, 6], [None, None], 1),
        ('with a worker', [3, 6], [None, None], 0),
        ('sized', [3, 6], [6, 6], None),
        ('wrongly sized', [1], [2], 1),
        ('plain', [2], [None], 0),
    ],
)
def test_an_epoch_ends_on_all_ranks_when_the_first_one_has_no_batch(ranks, name, iters, max_iters, first_ended):
    first, second = ranks[name]
    assert first[:5] == second[:5]  # the same weights, too
    assert first[:4] == (iters, max_iters, len(iters), iters[-1])
    if first_ended is not None:
        texts = [text for text in first[-1] if f'rank {first_ended} has no more batches after {iters[0]}' in text]
        assert len(texts) == len(iters)


def test_lengths_that_are_known_are_made_equal_at_the_start(ranks):
    (text,) = (text for text in ranks['sized'][0][-1] if 'batches' in text)
    assert 'the ranks have between 3 and 5 batches. The passes of all ranks, which train in step, end after 3' in text


def test_an_endless_loader_begins_the_next_pass_on_all_ranks(ranks):
    first, second = ranks['iterations']
    assert first[:5] == second[:5]
    assert first[2:4] == (2, 8)  # three batches a pass


def test_ranks_with_equally_much_have_nothing_to_tell(ranks):
    assert ranks['equal'][0][:4] == ([2], [None], 1, 2)
    assert [texts for *_, texts in ranks['equal']] == [[], []]


@pytest.mark.parametrize(
    'name, known',
    [
        ('sized, of torch', '5 batches on rank 0, 3 batches on rank 1'),
        ('lists', '2 batches on rank 0, 3 batches on rank 1'),
        (
            'samples',
            '2 batches (its data set has 8 samples) on rank 0, 3 batches (its data set has 12 samples) on rank 1',
        ),
        ('sized or not', 'no length on rank 0, 3 batches on rank 1'),
    ],
)
def test_other_loaders_of_unequal_length_are_refused_by_rank_0_for_all(ranks, name, known):
    told, elsewhere = ranks[name]
    assert f"the workflow entry ('train', 1) has {known}. The ranks train in step, and would wait" in told
    assert elsewhere == 'the ranks have unequally long data loaders, as rank 0 says'


def test_ranks_that_read_the_same_stream_are_told_once(ranks):
    for name in ('unshared', 'evaluated'):
        texts = [
            text for text in (ranks[name][0] if name == 'evaluated' else ranks[name][0][-1]) if 'same first' in text
        ]
        assert len(texts) == 1
        assert 'the ranks 0, 1 have the same first batch' in texts[0]
    assert not any('same first' in text for text in ranks['epochs'][0][-1])


@pytest.mark.parametrize('name', ['empty', 'empty, by iteration'])
def test_a_rank_without_any_batch_fails_on_all(ranks, name):
    for told in ranks[name]:
        assert 'no batches' in told


def test_alone_batches_are_as_they_are():
    batches = iter([1, 2])
    assert not may_have_unequal_lengths(Unsized([1]))
    assert until_shortest_rank(Unsized([1]), batches) is batches


def ends_on_the_second_rank(rank):
    """What each rank raises, and after how long."""
    runner = tiny_runner(model=MMDistributedDataParallel(Tiny()), max_epochs=2)
    runner.register_optimizer_hook({})
    began = time.monotonic()
    try:
        runner.run([build_dataloader(EndsEarly(5 if rank else None), 2, 0, shuffle=False)], [('train', 1)])
    except Exception as error:
        return str(error), time.monotonic() - began


def test_a_stop_iteration_on_one_rank_ends_the_run_on_all(ranks):
    (first, _), (second, _) = found = ranks['ends early']
    assert 'sample 5 of the data set EndsEarly: StopIteration' in second
    assert 'StopIteration' not in first
    assert max(seconds for _, seconds in found) < 50  # gloo would wait for 60


def test_an_evaluation_gives_each_sample_once_and_a_training_as_much_to_each_rank():
    loaders = [SeededLoader(range(3), 1, EpochSampler(range(3), False, rank=rank, world_size=2)) for rank in range(2)]

    def given():
        return [torch.cat(list(each)).tolist() for each in loaders]

    assert given() == [[0, 2], [1, 0]]
    with each_sample_once(loaders[0]), each_sample_once(loaders[1]):
        assert given() == [[0, 2], [1]]
    assert given() == [[0, 2], [1, 0]]
