import gc
from pathlib import Path

import pytest
import torch
from support import EndsEarly, tiny_runner
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
from runnerkit.data.kinds import (
    draws_in_workers,
    has_state,
    is_cheap_to_enter,
    is_empty,
    is_in_order,
    length_of,
    loader_facts,
    order_of,
    set_epoch,
    unknown_sampler,
    workers_live,
)
from runnerkit.data.loader import SeededLoader
from runnerkit.data.sampler import EpochSampler
from runnerkit.evaluation import single_gpu_test
from runnerkit.utils.user_files import module_of_file

noisy = module_of_file(str(Path(__file__).with_name('noisy_datasets.py')))


class Own(DataLoader):
    """Iterates in a way of its own, so its batch sampler is not all there is."""

    def __iter__(self):
        return iter(range(4))


class Keeps:
    """A loader that keeps its place itself."""

    def __len__(self):
        return 3

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


class Numbers(IterableDataset):
    def __iter__(self):
        return iter(range(6))


def pure():
    return TensorDataset(torch.arange(6.0))


def test_a_share_may_be_empty_where_the_loader_is_not():
    def share(number, **options):
        return build_dataloader(TensorDataset(torch.arange(number)), 2, 0, ranks=(2, 3), round_up=False, **options)

    assert [len(share(2)), len(share(3))] == [0, 1]
    assert not is_empty(share(2))
    assert is_empty([])
    assert is_empty(DataLoader(TensorDataset(torch.arange(1)), 2, drop_last=True))
    assert not is_empty(iter([]))  # nobody knows


def test_set_epoch_tells_every_part_once():
    class Part:
        def __init__(self):
            self.told = []

        def set_epoch(self, epoch):
            self.told.append(epoch)

    class Loader(Part):
        pass

    loader = Loader()
    loader.sampler = Part()
    loader.batch_sampler = Part()
    loader.batch_sampler.sampler = loader.sampler
    set_epoch(loader, 6)
    assert [part.told for part in (loader, loader.sampler, loader.batch_sampler)] == [[6]] * 3
    loader.batch_sampler.sampler = Part()
    set_epoch(loader, 7)
    assert loader.batch_sampler.sampler.told == [7]
    set_epoch([1], 6)

    class Stream(Part, IterableDataset):
        def __iter__(self):
            return iter([1])

    loader.dataset = Stream()
    set_epoch(loader, 8)
    assert loader.dataset.told == [8]
    loader.dataset = Part()  # one with indices gets its order from the sampler
    set_epoch(loader, 9)
    assert loader.dataset.told == []


@pytest.mark.parametrize(
    'loader, expected',
    [
        (build_dataloader(noisy.Noisy(6), 4, 0, seed=3), (4, 2)),
        (build_dataloader(noisy.Noisy(6), 4, 0, seed=3, seeded=False), (4, 2)),
        (DataLoader(noisy.Noisy(6), 4, sampler=EpochSampler(range(6)), drop_last=True), (4, 1)),
        (DataLoader(noisy.Noisy(6), 4), None),
        (SeededLoader(noisy.Noisy(6), 4, RandomSampler(range(6))), None),
        (SeededLoader(noisy.Noisy(6), batch_sampler=BatchSampler(EpochSampler(range(6)), 4, False)), None),
        (Own(noisy.Noisy(6), 4, sampler=EpochSampler(range(6))), None),
        (DataLoader(noisy.Noisy(6), batch_size=None, sampler=EpochSampler(range(6))), None),
        (SeededLoader(noisy.NoisyStream(6), 4), None),
        ([1], None),
    ],
)
def test_orders_that_are_known(loader, expected):
    order = order_of(loader)
    assert (None if order is None else (order.batch_size, order.batches_from(0))) == expected


def test_about_a_loader():
    ours = loader_facts(build_dataloader(noisy.Noisy(6), 4, 0, seed=3, ranks=(1, 2)))
    assert ours == {
        'kind': 'SeededLoader',
        'dataset': 'Noisy',
        'length': 6,
        'batch_size': 4,
        'batches': 1,
        'workers': 0,
        'world_size': 2,
        'seed': 3,
        'shuffle': True,
        'order': 'randperm',
    }
    by_batches = BatchSampler(EpochSampler(range(6), order='feistel'), 4, False)
    assert loader_facts(SeededLoader(noisy.Noisy(6), batch_sampler=by_batches))['order'] == 'feistel'
    stream = loader_facts(DataLoader(noisy.NoisyStream(6), 2))
    assert (stream['length'], stream['batches'], stream['batch_size']) == (None, None, 2)
    assert loader_facts([1])['dataset'] is None


@pytest.mark.parametrize(
    'loader, length, cheap, state, draws',
    [
        ([1], 1, False, False, False),
        (iter([1]), None, False, False, False),
        (Keeps(), 3, False, True, False),
        (SeededLoader(noisy.Noisy(6), 2, num_workers=1), 3, True, False, False),
        (DataLoader(noisy.Noisy(6), 2, num_workers=1), 3, True, False, True),
        (DataLoader(noisy.Noisy(6), 2), 3, True, False, False),
        (DataLoader(pure(), 2, num_workers=1), 3, True, False, False),
        (DataLoader(pure(), 2, num_workers=1, collate_fn=len), 3, True, False, True),
        (DataLoader(noisy.NoisyStream(6), 2), None, False, False, False),
    ],
)
def test_kinds_of_loaders(loader, length, cheap, state, draws):
    found = length_of(loader), is_cheap_to_enter(loader), has_state(loader), draws_in_workers(loader)
    assert found == (length, cheap, state, draws)


def test_persistent_workers_live_from_the_first_pass_on():
    loader = DataLoader(pure(), 2, num_workers=1, persistent_workers=True)
    assert not workers_live(loader)
    iter(loader)
    assert workers_live(loader)
    assert not workers_live(DataLoader(pure(), 2, num_workers=1))


def test_loaders_in_order_are_those_that_torch_does_not_shuffle():
    data, shuffled = TensorDataset(torch.arange(4)), RandomSampler(range(4))
    assert is_in_order(DataLoader(data, 2))
    assert is_in_order(DataLoader(data, None))
    assert not is_in_order(DataLoader(data, 2, shuffle=True))
    assert not is_in_order(DataLoader(data, batch_sampler=BatchSampler(shuffled, 2, False)))  # beside an unused sampler
    assert not is_in_order(Own(data, 2))
    assert not is_in_order(DataLoader(Numbers()))
    assert not is_in_order([1, 2])


class Mine:
    """A user's sampler, here without a state."""

    def __iter__(self):
        return iter(range(6))

    def __len__(self):
        return 6


class MineWithState(Mine):
    state_dict, load_state_dict = Keeps.state_dict, Keeps.load_state_dict


@pytest.mark.parametrize(
    'options, is_known',
    [
        ({}, True),
        ({'shuffle': True}, True),
        ({'sampler': WeightedRandomSampler([1.0] * 6, 6)}, True),
        ({'sampler': SubsetRandomSampler(range(6))}, True),
        ({'sampler': DistributedSampler(range(6), 1, 0)}, True),
        ({'sampler': EpochSampler(range(6))}, True),
        ({'sampler': [5, 4, 3]}, True),
        ({'sampler': MineWithState()}, True),
        ({'sampler': Mine()}, False),
        ({'batch_sampler': BatchSampler(RandomSampler(range(6)), 2, False)}, True),
        ({'batch_sampler': BatchSampler(Mine(), 2, False)}, False),
        ({'batch_sampler': Mine()}, False),
        ({'batch_size': None, 'sampler': Mine()}, False),
    ],
)
def test_samplers_that_may_remember_what_no_checkpoint_holds(options, is_known):
    assert (unknown_sampler(DataLoader(pure(), **options)) is None) == is_known


# --- passes that end early -------------------------------------------------------------------------------------------


class Estimate:
    """A user's batch sampler, whose length is a guess."""

    def __len__(self):
        return 8

    def __iter__(self):
        return iter([[0, 1], [2, 3]])


def run_over(loader, kind, mode):
    runner = tiny_runner(kind, **({'max_epochs': 2} if kind == 'epoch' else {'max_iters': 8}))
    runner.register_optimizer_hook({})
    if mode == 'evaluate':
        return runner.evaluate(loader)
    if mode == 'val':
        return runner.run([build_dataloader(EndsEarly(None), 2, 0), loader], [('train', 1), ('val', 6)])
    return runner.run([loader], [('train', 1)])


@pytest.mark.parametrize(
    ('kind', 'mode', 'workers', 'at'),
    [
        ('epoch', 'train', 0, 5),
        ('epoch', 'train', 1, 5),
        ('epoch', 'train', 0, 0),
        ('iter', 'train', 0, 5),
        ('iter', 'train', 0, 0),
        ('epoch', 'val', 0, 5),
        ('iter', 'val', 0, 5),
        ('epoch', 'evaluate', 0, 5),
        ('epoch', 'evaluate', 0, 0),
    ],
)
def test_a_pass_that_ends_before_its_length_is_an_error(kind, mode, workers, at):
    with pytest.raises(RuntimeError, match=rf'DataLoader of EndsEarly: the pass ended after {at // 2} of 6 batches'):
        run_over(DataLoader(EndsEarly(at), 2, num_workers=workers), kind, mode)
    gc.collect()  # the error's frames hold the workers


def test_predictions_of_a_pass_that_has_ended_early_are_an_error():
    class Predicts(torch.nn.Module):
        def forward(self, return_loss, **data):
            return list(data['x'])

    loader = DataLoader(EndsEarly(), 2, collate_fn=lambda samples: {'x': [x for x, _ in samples]})
    with pytest.raises(RuntimeError, match='ended after 2 of 6'):
        single_gpu_test(Predicts(), loader)


@pytest.mark.parametrize('mode', ['train', 'evaluate'])
def test_a_length_that_may_be_an_estimate_is_warned_of_once(mode, caplog):
    run_over(DataLoader(EndsEarly(None), batch_sampler=Estimate()), 'epoch', mode)
    assert caplog.text.count('the pass ended after 2 of 8 batches') == 1


@pytest.mark.filterwarnings('ignore:Length of IterableDataset')
def test_streams_may_be_shorter_than_they_say(caplog):
    class Short(IterableDataset):
        def __len__(self):
            return 8

        def __iter__(self):
            return ((torch.full((4,), float(i)), torch.zeros(1)) for i in range(4))

    run_over(DataLoader(Short(), 2), 'epoch', 'train')
    assert 'the pass ended' not in caplog.text


def test_a_pass_that_the_run_cuts_short_is_none_that_ended_early():
    runner = tiny_runner(max_iters=3)
    runner.run([DataLoader(EndsEarly(None), 2)], [('train', 1)])
    assert runner.iter == 3
