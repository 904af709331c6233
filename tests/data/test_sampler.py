import copy
import pickle
from itertools import islice

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler

from runnerkit.data.permutation import BLOCK, Permutation
from runnerkit.data.sampler import (
    LARGE,
    EpochBatchSampler,
    EpochSampler,
    FirstBatches,
    SampleBatch,
    SeededBatchSampler,
    epoch_order,
    usual_order,
)
from runnerkit.data.seeding import mix_seed


def test_order_is_a_function_of_seed_and_epoch():
    state = torch.get_rng_state()
    assert torch.equal(epoch_order(100, 3, 1), epoch_order(100, 3, 1))
    assert torch.equal(state, torch.get_rng_state())
    orders = {tuple(epoch_order(100, seed, epoch).tolist()) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16
    assert all(sorted(order) == list(range(100)) for order in orders)
    assert epoch_order(5, 3, 1, shuffle=False).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize('world_size', [1, 2, 3])
@pytest.mark.parametrize('length', [1, 2, 11, 12])
def test_shares_with_padding(length, world_size):
    order = epoch_order(length, 0, 4).tolist()
    samplers = [EpochSampler(range(length), rank=rank, world_size=world_size) for rank in range(world_size)]
    for sampler in samplers:
        sampler.set_epoch(4)
    shares = [list(sampler) for sampler in samplers]
    assert {len(share) for share in shares} == {-(-length // world_size)} == {len(sampler) for sampler in samplers}
    for rank, share in enumerate(shares):
        assert share == [order[(i * world_size + rank) % length] for i in range(len(share))]


@pytest.mark.parametrize('world_size', [1, 2, 3, 5])
def test_shares_without_padding_hold_every_sample_once(world_size):
    shares = [
        list(EpochSampler(range(4), rank=rank, world_size=world_size, round_up=False)) for rank in range(world_size)
    ]
    assert sorted(sum(shares, [])) == [0, 1, 2, 3]
    assert [len(share) for share in shares] == [len(range(rank, 4, world_size)) for rank in range(world_size)]


def test_drop_last_leaves_out_the_orders_end():
    order = epoch_order(11, 0, 0).tolist()
    shares = [list(EpochSampler(range(11), rank=rank, world_size=3, drop_last=True)) for rank in range(3)]
    assert [len(share) for share in shares] == [3, 3, 3]
    assert set(sum(shares, [])) == set(order[:9])


def test_of_no_samples():
    assert list(EpochSampler([])) == []
    assert list(EpochBatchSampler(EpochSampler([]), 2)) == []


@pytest.mark.parametrize('rank', [-1, 2])
def test_rank_out_of_range(rank):
    with pytest.raises(ValueError, match=f'rank={rank} with world_size=2'):
        EpochSampler(range(3), rank=rank, world_size=2)


def test_an_order_that_is_not_known():
    with pytest.raises(ValueError, match="order must be 'randperm' or 'feistel', but got 'feistl'; did you mean"):
        EpochSampler(range(3), order='feistl')


def test_which_data_sets_are_large():
    assert [usual_order(length) for length in (0, 1, LARGE, LARGE + 1, 10**12)] == ['randperm'] * 3 + ['feistel'] * 2
    assert EpochSampler(range(LARGE)).order == 'randperm'
    assert EpochSampler(range(LARGE + 1)).order == 'feistel'
    assert EpochSampler(range(LARGE + 1), order='randperm').order == 'randperm'


def test_small_data_sets_are_shuffled_as_ever():
    """By the numbers of torch's generator, of which there are checkpoints."""
    torch_order = torch.randperm(40, generator=torch.Generator().manual_seed(mix_seed(3, 2)))
    assert epoch_order(40, 3, 2).tolist() == torch_order.tolist()
    sampler = EpochSampler(range(40), seed=3)
    sampler.set_epoch(2)
    assert list(sampler) == torch_order.tolist()


FEISTEL = {'order': 'feistel'}


@pytest.mark.parametrize('end', [{}, {'round_up': False}, {'drop_last': True}, {'limit': 9001}])
@pytest.mark.parametrize('world_size', [1, 2, 3])
def test_a_computed_order_is_shared_as_a_drawn_one_is(world_size, end):
    """Which sample stands where is another matter than who gets what."""
    length = 2 * BLOCK + 1234
    orders = {kind: epoch_order(length, 3, 1, order=kind) for kind in ('randperm', 'feistel')}
    assert orders['feistel'].unique().numel() == length
    for start in (0, 5, BLOCK + 1, length - 2, length):
        for rank in range(world_size):
            places = {}
            for kind, order in orders.items():
                sampler = EpochSampler(range(length), seed=3, rank=rank, world_size=world_size, order=kind, **end)
                sampler.set_epoch(1)
                sampler.start = start
                batches = [list(batch) for batch in EpochBatchSampler(sampler, 1000)]
                assert list(sampler) == sum(batches, [])
                places[kind] = order.argsort()[sum(batches, [])].tolist()
            assert places['feistel'] == places['randperm']


def test_computed_orders_differ_by_seed_and_epoch():
    orders = set()
    for seed in range(3):
        sampler = EpochSampler(range(10**15), seed=seed, **FEISTEL)
        orders |= {tuple(sampler.indices(epoch, range(50))) for epoch in range(3)}
        assert tuple(sampler.indices(0, range(50))) in orders  # and come again
    assert len(orders) == 9


def test_any_places_of_a_computed_order():
    order = epoch_order(999, 0, 0, order='feistel').tolist()
    sampler = EpochSampler(range(999), **FEISTEL)
    for positions in (
        range(3, 9),
        range(4, 8),
        range(5, 50, 7),
        range(12, 13),
        range(2, 3),
        range(990, 1010, 3),
        range(0),
    ):
        assert sampler.indices(0, positions) == [order[each % 999] for each in positions]


def test_a_computed_order_is_not_computed_batch_by_batch(monkeypatch):
    asked = []
    indices = Permutation.indices
    monkeypatch.setattr(
        Permutation, 'indices', lambda self, positions: asked.append(len(positions)) or indices(self, positions)
    )
    for world_size in (1, 7):
        running = iter(EpochBatchSampler(EpochSampler(range(10**9), rank=0, world_size=world_size), 32))
        for _ in range(2 * BLOCK // 32):
            next(running)
        assert asked == [BLOCK, BLOCK]
        asked.clear()


class Endless:
    """A data set that would not fit anywhere as a list."""

    def __len__(self):
        return 10**17


@pytest.mark.parametrize('options', [{}, {'shuffle': False}, {'round_up': False, 'limit': 10**16}])
def test_no_list_of_all_samples_is_ever_made(options):
    """One would take eight hundred petabytes."""
    sampler = EpochSampler(Endless(), rank=2, world_size=3, **options)
    batches = EpochBatchSampler(sampler, 4)
    for iteration in (sampler, BatchSampler(sampler, 4, False), batches):
        for start in (0, 10**15 + 1, sampler.end - 10):
            sampler.start = start
            assert len([*islice(iteration, 3)]) == (3 if start < 10**16 - 10 or iteration is sampler else 1)
    assert len(batches) == -(-len(sampler) // 4)
    assert sampler.consumed(5, 7) == 26


def coordinates(world_size, batch_size, epoch=1, **options):
    """(position, index) of all samples of all ranks, in order."""
    found = []
    for rank in range(world_size):
        batches = EpochBatchSampler(EpochSampler(range(24), rank=rank, world_size=world_size, **options), batch_size)
        batches.set_epoch(epoch)
        for batch in batches:
            assert batch.epoch == epoch
            found += zip(batch.positions, batch, strict=True)
    return sorted(found)


@pytest.mark.parametrize(('world_size', 'batch_size'), [(1, 1), (1, 7), (2, 3), (3, 2), (3, 5)])
def test_positions_do_not_depend_on_ranks_and_batch_size(world_size, batch_size):
    assert coordinates(world_size, batch_size) == list(enumerate(epoch_order(24, 0, 1).tolist()))


def test_padded_samples_have_positions_of_their_own():
    found = coordinates(5, 2)
    assert [position for position, _ in found] == list(range(25))
    assert found[24][1] == found[0][1]


@pytest.mark.parametrize('drop_last', [False, True])
@pytest.mark.parametrize('batch_size', [1, 4, 11, 20])
def test_batches_are_torchs_own_and_can_be_entered_anywhere(batch_size, drop_last):
    sampler = EpochSampler(range(11))
    ours = EpochBatchSampler(sampler, batch_size, drop_last)
    theirs = BatchSampler(sampler, batch_size, drop_last)
    whole = list(ours)
    assert whole == list(theirs)
    assert len(whole) == len(ours) == len(theirs)
    order = epoch_order(11, 0, 0).tolist()
    for start in range(13):
        sampler.start = start
        entered = list(ours)
        assert entered == list(theirs) == list(BatchSampler(order[start:], batch_size, drop_last))
        assert len(entered) == ours.batches_from(start)
        assert [list(batch.positions) for batch in entered] == list(
            BatchSampler(range(start, 11), batch_size, drop_last)
        )
        assert len(ours) == len(whole)  # the length is a whole epoch's


ENDS = {'round up': {}, 'not': {'round_up': False}, 'drop': {'drop_last': True}}


@pytest.mark.parametrize('end', ENDS)
@pytest.mark.parametrize('world_size', [1, 2, 3])
def test_the_rest_of_an_epoch_is_shared_from_any_position_on(world_size, end):
    order = epoch_order(11, 0, 0).tolist()
    samplers = [EpochSampler(range(11), rank=rank, world_size=world_size, **ENDS[end]) for rank in range(world_size)]
    for start in range(13):
        shares = []
        for sampler in samplers:
            sampler.start = start
            shares.append(list(sampler))
            assert len(shares[-1]) == sampler.share_of(start) == len(sampler.positions(start))
        rest = order[start:]
        left = {
            'round up': -(-len(rest) // world_size) * world_size,
            'not': len(rest),
            'drop': len(rest) // world_size * world_size,
        }
        together = [share[i] for i in range(len(shares[0])) for share in shares if i < len(share)]
        assert together == (rest + order)[: left[end]]


@pytest.mark.parametrize('end', ENDS)
@pytest.mark.parametrize('world_size', [1, 2, 3])
def test_what_all_ranks_have_consumed_follows_from_what_one_has(world_size, end):
    samplers = [EpochSampler(range(11), rank=rank, world_size=world_size, **ENDS[end]) for rank in range(world_size)]
    sampler = samplers[0]
    for start in range(12):
        whole = sampler.share_of(start)
        for samples in range(whole):
            seen = {p for each in samplers for p in each.positions(start)[:samples]}
            assert sampler.consumed(start, samples) == start + len(seen)
        # An epoch that is over is over, whatever was left out; what was repeated lies behind its end.
        repeated = 0 if end != 'round up' else -(11 - start) % world_size
        assert sampler.consumed(start, whole) == sampler.consumed(start, whole + 1) == 11 + repeated


def test_the_start_is_that_epochs_only():
    sampler = EpochSampler(range(11))
    sampler.start = 4
    sampler.set_epoch(0)
    assert sampler.start == 4
    sampler.set_epoch(1)
    assert sampler.start == 0


def test_indices_at_any_positions_of_any_epoch():
    sampler = EpochSampler(range(11), seed=3)
    for epoch in (0, 1, 0):
        order = epoch_order(11, 3, epoch).tolist()
        assert sampler.indices(epoch, range(2, 9, 3)) == [order[2], order[5], order[8]]
        assert sampler.indices(epoch, range(9, 14, 2)) == [order[9], order[0], order[2]]
        assert sampler.indices(epoch, range(0)) == []
    sampler.shuffle = False
    assert sampler.indices(0, range(3)) == [0, 1, 2]


def test_an_order_of_somebody_elses_is_asked_for_its_positions_only():
    class Backwards(EpochSampler):
        """Never holds a list of all samples."""

        def indices(self, epoch, positions):
            return [self.length - 1 - position for position in positions]

    batches = EpochBatchSampler(Backwards(range(10**12), rank=1, world_size=2), 2)
    batches.sampler.start = 10**12 - 6
    assert [list(batch) for batch in batches] == [[4, 2], [0]]


def test_a_batch_costs_no_tensor_operation():
    called = []

    class Counted(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            called.append(function)
            return function(*args, **(kwargs or {}))

    running = iter(EpochBatchSampler(EpochSampler(range(11)), 4))
    with Counted():
        next(running)
        at_the_start = len(called)
        assert [len(batch) for batch in running] == [4, 3]
    assert 0 < at_the_start == len(called)


def test_an_iteration_keeps_the_epoch_it_began_with():
    batches = EpochBatchSampler(EpochSampler(range(11)), 4)
    expected = list(batches)
    running = iter(batches)
    batches.set_epoch(1)
    batches.sampler.start = 2
    assert list(running) == expected
    assert batches.epoch == 1


def test_batch_travels_with_its_coordinates():
    batch = SampleBatch([5, 'key'], 3, range(4, 8, 2))
    for other in (pickle.loads(pickle.dumps(batch)), copy.copy(batch)):
        assert type(other) is SampleBatch
        assert (list(other), other.epoch, list(other.positions)) == ([5, 'key'], 3, [4, 6])


def seeded(sampler, seed=0, **options):
    return SeededBatchSampler(BatchSampler(sampler, 4, False), seed, **options)


def test_foreign_samplers_become_functions_of_seed_and_epoch():
    batches = seeded(RandomSampler(range(10)))
    state = torch.get_rng_state()
    first = list(batches)
    torch.rand(3)
    assert list(batches) == first
    assert [list(batch.positions) for batch in first] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    batches.set_epoch(1)
    assert list(batches) != first
    assert sorted(sum(batches, [])) == list(range(10))
    assert list(seeded(RandomSampler(range(10)), seed=1)) != first
    torch.set_rng_state(state)


def test_foreign_samplers_positions_are_over_all_ranks():
    batches = seeded(SequentialSampler(range(5)), rank=1, world_size=3)
    assert [list(batch.positions) for batch in batches] == [[1, 4, 7, 10], [13]]
    assert len(batches) == 2


def test_foreign_samplers_are_entered_with_the_same_draws():
    batches = seeded(RandomSampler(range(10)))
    whole = list(batches)
    batches.start = 1
    assert list(batches) == whole[1:]
    assert [batch.positions for batch in batches] == [batch.positions for batch in whole[1:]]


def test_the_epoch_reaches_and_comes_from_the_inner_sampler():
    inner = DistributedSampler(range(8), num_replicas=2, rank=0)
    batches = seeded(inner)
    batches.set_epoch(2)
    assert inner.epoch == 2
    inner.set_epoch(3)  # what MMCV's hook does
    assert batches.epoch == 3
    assert list(batches) == list(BatchSampler(inner, 4, False))
    assert next(iter(batches)).epoch == 3


class Counted(RandomSampler):
    """A sampler whose ``epoch`` nobody can set: a number of its own, or one that it counts itself."""

    def __init__(self, epoch, counts):
        super().__init__(range(10))
        self.epoch = epoch
        self.counts = counts

    def __iter__(self):
        self.epoch += self.counts
        return super().__iter__()


@pytest.mark.parametrize(('epoch', 'counts'), [(0, 0), (7, 0), (0, 1)])
def test_an_inner_epoch_that_cannot_be_set_pins_nothing(epoch, counts):
    batches = seeded(Counted(epoch, counts))
    assert batches.epoch == epoch
    orders = set()
    for each in (0, 1, 2, 1):
        batches.set_epoch(each)
        assert batches.epoch == each
        found = list(batches)
        assert {batch.epoch for batch in found} == {each}
        orders.add(tuple(sum(found, [])))
    assert len(orders) == 3


def test_a_batch_sampler_with_an_epoch_of_its_own():
    class Grouped:
        group = 'wide'

        def set_epoch(self, epoch):
            self.told = epoch

        def __iter__(self):
            return iter([(0, 1), (2,)])

    batches = SeededBatchSampler(Grouped(), 0)
    batches.set_epoch(4)
    assert batches.told == batches.epoch == 4
    assert batches.group == 'wide'
    assert list(batches) == [[0, 1], [2]]
    with pytest.raises(AttributeError, match='missing'):
        batches.missing


def test_seeded_batch_sampler_is_copied_and_pickled():
    batches = seeded(SequentialSampler(range(5)))
    for other in (copy.deepcopy(batches), pickle.loads(pickle.dumps(batches))):
        assert list(other) == list(batches)
        assert other.batch_size == 4


@pytest.mark.parametrize('world_size', [1, 2])
@pytest.mark.parametrize('length', [7, 8, 20])
def test_a_limit_takes_the_first_of_each_epochs_order(length, world_size):
    samplers = [
        EpochSampler(range(length), rank=rank, world_size=world_size, round_up=False, limit=8)
        for rank in range(world_size)
    ]
    for epoch in (0, 3):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        first = epoch_order(length, 0, epoch).tolist()[:8]
        assert [list(sampler) for sampler in samplers] == [first[rank::world_size] for rank in range(world_size)]
        assert [len(sampler) for sampler in samplers] == [len(list(sampler)) for sampler in samplers]


def test_a_limit_holds_from_any_position_on():
    sampler = EpochSampler(range(20), rank=1, world_size=2, limit=8)
    assert [sampler.share_of(start) for start in (0, 4, 7, 8, 12)] == [4, 2, 1, 0, 0]
    assert sampler.consumed(0, 3) == 6
    assert sampler.consumed(0, 4) == sampler.end == 8


def test_the_first_batches_of_any_batch_sampler():
    inner = BatchSampler(RandomSampler(range(9), generator=torch.Generator().manual_seed(2)), 2, False)
    limited = FirstBatches(inner, 3)
    passes = [list(limited) for _ in range(2)]
    assert [len(batches) for batches in passes] == [3, 3]
    assert len(limited) == 3
    assert passes[0] != passes[1]
    assert limited.batch_size == 2
    assert limited.sampler is inner.sampler
    assert len(FirstBatches(inner, 7)) == len(list(FirstBatches(inner, 7))) == 5
    assert list(pickle.loads(pickle.dumps(limited)))
    with pytest.raises(AttributeError):
        limited.no_such
