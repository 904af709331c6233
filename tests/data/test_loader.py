import copy
import pickle
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from support import end_at_once
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler

from runnerkit.data.loader import SeededLoader
from runnerkit.data.sampler import EpochSampler
from runnerkit.utils.user_files import module_of_file

noisy = module_of_file(str(Path(__file__).with_name('noisy_datasets.py')))
pytestmark = pytest.mark.filterwarnings('ignore:This DataLoader will create')


def make(dataset=None, batch_size=4, seed=3, rank=0, world_size=1, **options):
    dataset = noisy.Noisy() if dataset is None else dataset
    sampler = EpochSampler(dataset, seed=seed, rank=rank, world_size=world_size)
    return SeededLoader(dataset, batch_size, sampler, seed=seed, rank=rank, world_size=world_size, **options)


def flat(batches):
    """The samples of batches: their indices, and their draws."""
    batches = list(batches)
    return torch.cat([index for index, _ in batches]), torch.cat([noise for _, noise in batches])


def same(left, right):
    return len(left) == len(right) and all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def streams():
    return [*torch.get_rng_state().tolist(), random.getstate(), *np.random.get_state()[1].tolist()]


EXPECTED = flat(make().enter(epoch=2))


def test_every_sample_draws_its_own():
    assert sorted(EXPECTED[0].tolist()) == list(range(23))
    assert len({tuple(row) for row in EXPECTED[1].tolist()}) == 23


@pytest.mark.parametrize('workers', [1, 4])
def test_the_number_of_workers_changes_nothing(workers):
    assert same(flat(make(num_workers=workers).enter(2)), EXPECTED)


@pytest.mark.parametrize('batch_size', [1, 7, 23, 40])
def test_the_batch_size_changes_nothing(batch_size):
    assert same(flat(make(batch_size=batch_size).enter(2)), EXPECTED)


@pytest.mark.parametrize('world_size, workers', [(2, 0), (3, 0), (3, 2)])
def test_the_number_of_ranks_changes_nothing(world_size, workers):
    shares = [flat(make(rank=rank, world_size=world_size, num_workers=workers).enter(2)) for rank in range(world_size)]
    for part, expected in enumerate(EXPECTED):
        interleaved = torch.stack([share[part] for share in shares], 1).flatten(0, 1)
        assert torch.equal(interleaved[:23], expected)


def test_persistent_workers_change_nothing():
    loader = make(num_workers=2, persistent_workers=True)
    for epoch in (2, 0, 2):
        assert same(flat(loader.enter(epoch)), flat(make().enter(epoch)))


@pytest.mark.thorough  # tests/cli/test_train.py::test_classes_named_by_file_reach_spawned_workers spawns one
def test_spawned_workers_change_nothing():
    assert same(flat(make(num_workers=1, multiprocessing_context='spawn').enter(2)), EXPECTED)


@pytest.mark.parametrize('start, workers', [(0, 0), (1, 0), (4, 0), (6, 0), (9, 0), (4, 2)])
def test_an_epoch_is_entered_without_loading_what_lies_before(start, workers):
    loader = make(num_workers=workers)
    whole = list(loader.enter(2))
    loader.dataset.asked.clear()
    entered = list(loader.enter(2, start))
    assert len(entered) == max(6 - start, 0)
    assert all(same(a, b) for a, b in zip(entered, whole[start:], strict=True))
    if workers == 0:
        assert loader.dataset.asked == EXPECTED[0].tolist()[4 * start :]
    assert len(list(loader)) == 6  # the start was for that iteration only


@pytest.mark.parametrize('world_size', [1, 2])
@pytest.mark.parametrize('start', [5, 8, 22, 23])
def test_an_epoch_goes_on_from_any_sample(start, world_size):
    shares = []
    for rank in range(world_size):
        loader = make(rank=rank, world_size=world_size)
        loader.set_epoch(2)
        loader.sampler.start = start
        shares.append(list(loader))
    for part, expected in enumerate(EXPECTED):
        parts = [torch.cat([batch[part] for batch in share]) for share in shares if share]
        together = torch.stack(parts, 1).flatten(0, 1)[: 23 - start] if parts else expected[:0]
        assert torch.equal(together, expected[start:])


@pytest.mark.parametrize('world_size', [2, 3])
def test_batches_are_left_out_of_each_ranks_own(world_size):
    loader = make(rank=1, world_size=world_size)
    whole = list(loader.enter(2))
    assert same(flat(loader.enter(2, 1)), flat(whole[1:]))


def test_plain_iteration_honours_set_epoch():
    loader = make()
    first = flat(loader)
    assert same(first, flat(loader))
    loader.sampler.set_epoch(2)  # as MMCV's hook does
    assert loader.epoch == 2
    assert same(flat(loader), EXPECTED)
    loader.set_epoch(0)
    assert same(flat(loader), first)


def test_seeds_differ():
    assert not torch.equal(flat(make(seed=4))[1].sort(0)[0], flat(make())[1].sort(0)[0])


@pytest.mark.parametrize('workers', [0, 2])
def test_the_runs_own_streams_notice_nothing(workers):
    np.random.seed(0)
    np.random.randn()
    before = streams(), np.random.get_state()[3:]
    for _ in make(num_workers=workers):
        assert (streams(), np.random.get_state()[3:]) == before


def test_dropout_between_batches_does_not_depend_on_workers():
    def train(workers):
        torch.manual_seed(0)
        return [torch.nn.functional.dropout(noise) for _, noise in make(num_workers=workers)]

    assert same(train(0), train(1))


def test_large_images_are_bit_identical():
    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        batches = [list(make(noisy.Images(), 3, num_workers=workers)) for workers in (0, 1, 4)]
        assert same(batches[0], batches[1])
        assert same(batches[0], batches[2])
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize('workers', [1, 4])
def test_a_random_collate_function_is_a_function_of_the_batch(workers):
    plain, worked = (list(make(collate_fn=noisy.mixup, num_workers=n)) for n in (0, workers))
    assert same(plain, worked)
    assert same(list(make(collate_fn=noisy.mixup).enter(0, 3)), plain[3:])


def test_an_exception_restores_the_streams():
    before = streams()
    with pytest.raises(LookupError, match='is broken'):
        list(make(noisy.Breaking()))
    assert streams() == before
    with pytest.raises(LookupError, match='is broken'):
        list(make(noisy.Breaking(), num_workers=1))


def test_a_loader_inside_a_data_set():
    inner = make()
    nested, plain = (list(make(noisy.Nesting(loader))) for loader in (inner, None))
    assert all(same(a, b) for a, b in zip(nested, plain, strict=True))


def test_samples_are_made_one_by_one_also_where_the_data_set_makes_batches():
    assert same(flat(make(noisy.Batched()).enter(2)), EXPECTED)


def test_users_see_their_own_objects():
    dataset = noisy.Noisy()
    loader = make(dataset, collate_fn=noisy.mixup, worker_init_fn=noisy.label_worker, num_workers=1, drop_last=True)
    running = iter(loader)
    assert loader.dataset is dataset
    assert loader.collate_fn is noisy.mixup
    assert loader.worker_init_fn is noisy.label_worker
    assert len(list(running)) == 5
    assert (loader.batch_size, loader.drop_last, len(loader)) == (4, True, 5)
    assert isinstance(loader.sampler, EpochSampler)
    assert loader.batch_sampler.sampler is loader.sampler
    assert list(loader.batch_sampler)[0] == list(loader.sampler)[:4]


@pytest.mark.filterwarnings('ignore:Got pickle error')
def test_a_failed_start_leaves_the_users_objects():
    loader = make(num_workers=1, multiprocessing_context='spawn', collate_fn=lambda samples: samples)
    dataset = loader.dataset
    with pytest.raises((AttributeError, pickle.PicklingError)):
        loader.enter(0, 2)
    assert loader.dataset is dataset
    assert loader.sampler.start == 0


def test_worker_init_sees_the_users_data_set():
    loader = make(noisy.InitSeen(), num_workers=2, worker_init_fn=noisy.label_worker)
    assert {label for batch in loader for label in batch.tolist()} == {10, 11}


def test_what_workers_draw_outside_of_samples_follows_from_seed_epoch_and_rank():
    def label(epoch=0, **options):
        loader = make(noisy.InitSeen(1), num_workers=1, worker_init_fn=noisy.label_seed, **options)
        return next(loader.enter(epoch)).item()

    assert label() == label()
    assert len({label(), label(epoch=1), label(seed=4), label(rank=1, world_size=2)}) == 4


def test_copies_and_pickles():
    loader = make()
    for other in (copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        assert same(flat(other.enter(2)), EXPECTED)
        assert type(other) is SeededLoader


def test_any_other_sampler():
    def batches(workers, start=0):
        dataset = noisy.Noisy()
        loader = SeededLoader(dataset, 4, RandomSampler(dataset), seed=3, num_workers=workers)
        return list(loader.enter(1, start))

    state = torch.get_rng_state()
    plain = batches(0)
    assert sorted(flat(plain)[0].tolist()) == list(range(23))
    torch.rand(1)
    assert same(flat(batches(2)), flat(plain))
    assert same(flat(batches(0, 2)), flat(plain[2:]))
    torch.set_rng_state(state)


def test_a_batch_sampler():
    dataset = noisy.Noisy()
    batch_sampler = BatchSampler(EpochSampler(dataset, seed=3), 5, False)
    loader = SeededLoader(dataset, batch_sampler=batch_sampler, seed=3)
    assert [len(index) for index, _ in loader] == [5, 5, 5, 5, 3]
    assert same(flat(loader.enter(2)), EXPECTED)
    assert loader.batch_sampler.batch_sampler is batch_sampler


def test_without_sampler_the_data_sets_own_order():
    ranks = [SeededLoader(noisy.Noisy(), 4, rank=rank, world_size=2) for rank in range(2)]
    indices, draws = zip(*(flat(loader) for loader in ranks), strict=True)
    assert torch.stack(indices, 1).flatten().tolist() == [*range(23), 0]
    alone = flat(SeededLoader(noisy.Noisy(), 4))
    assert torch.equal(torch.stack(draws, 1).flatten(0, 1)[:23], alone[1])


@pytest.mark.parametrize('batch_size', [0, None, 2.0])
def test_bad_batch_sizes(batch_size):
    with pytest.raises((TypeError, ValueError), match='batch_size must be a whole number of at least 1, but got'):
        SeededLoader(noisy.Noisy(), batch_size)


def test_a_given_generator_is_the_users():
    generator = torch.Generator().manual_seed(1)
    loader = make(generator=generator)
    assert same(flat(loader.enter(2)), EXPECTED)
    assert loader.generator is generator
    assert not torch.equal(generator.get_state(), torch.Generator().manual_seed(1).get_state())


def stream(**options):
    return SeededLoader(noisy.NoisyStream(), 3, seed=3, **options)


@pytest.mark.parametrize('workers', [0, 2])
def test_streams_are_functions_of_seed_epoch_rank_and_workers(workers):
    before = streams()
    first = flat(stream(num_workers=workers).enter(1))
    assert streams() == before
    assert sorted(first[0].tolist()) == list(range(12))
    assert len({tuple(row) for row in first[1].tolist()}) == 12
    assert same(flat(stream(num_workers=workers).enter(1)), first)
    assert not torch.equal(flat(stream(num_workers=workers).enter(0))[1], first[1])
    assert not torch.equal(flat(stream(num_workers=workers, rank=1).enter(1))[1], first[1])


def test_streams_tell_persistent_workers_of_the_epoch():
    loader = stream(num_workers=2, persistent_workers=True)
    for epoch in (0, 1, 0):
        assert same(flat(loader.enter(epoch)), flat(stream(num_workers=2).enter(epoch)))
        assert loader.epoch == epoch


def test_streams_are_entered_by_reading_up_to_there():
    whole = list(stream().enter(1))
    assert same(flat(stream().enter(1, 2)), flat(whole[2:]))
    assert list(stream().enter(1, 9)) == []
    assert isinstance(stream().dataset, IterableDataset)


@pytest.mark.parametrize('persistent', [False, True])
def test_workers_of_a_dropped_pass_end_by_themselves(persistent, monkeypatch):
    """Also if it is part of a reference cycle, as in a runner: once, each worker was waited for in vain."""
    loader = make(num_workers=2, persistent_workers=persistent)
    batches = iter(loader)
    next(batches)
    workers = list(batches._workers)
    cycle = [batches]
    cycle.append(cycle)
    del batches, loader, cycle
    assert end_at_once(workers, monkeypatch)


ENDS_EARLY = """
import multiprocessing

import torch
from runnerkit.data import build_dataloader, worker_signals

torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 1e6  # how long a worker that was not told to end is waited for

def begin():
    passes.append(iter(build_dataloader(range(100), 2, 2, persistent_workers={persistent})))
    next(passes[-1])


passes = []
worker_signals.GRACE = 1e6  # how long workers outlive SIGTERM
if __name__ == '__main__':
    begin()
    child = multiprocessing.Process(target=begin)  # as ranks are, where a program starts them
    child.start()
    child.join(100)
    assert child.exitcode == 0, child
    next(passes[0])  # a child has not sent the workers of its parent home
"""


@pytest.mark.thorough  # tests/data/test_worker_signals.py
def test_python_does_not_wait_for_workers_when_it_ends_in_the_middle_of_a_pass(tmp_path):
    for persistent in (False, True):
        script = tmp_path / 'script.py'
        script.write_text(ENDS_EARLY.format(persistent=persistent))
        subprocess.run([sys.executable, script], check=True, timeout=200)
