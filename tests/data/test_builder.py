from pathlib import Path

import pytest
import torch
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, DistributedSampler, RandomSampler

from runnerkit.data import DATASETS, SAMPLERS, EpochSampler, SeededLoader, build_dataloader, build_dataset
from runnerkit.data.builder import RepeatDataset
from runnerkit.data.sampler import epoch_order
from runnerkit.utils.user_files import module_of_file

noisy = module_of_file(str(Path(__file__).with_name('noisy_datasets.py')))
pytestmark = pytest.mark.filterwarnings('ignore:This DataLoader will create')
NOISY = {'type': noisy.Noisy, 'length': 6}


def indices(loader):
    return [index.tolist() for index, _ in loader]


def build(length=10, samples_per_gpu=4, workers_per_gpu=0, seed=1, **options):
    return build_dataloader(noisy.Noisy(length), samples_per_gpu, workers_per_gpu, seed=seed, **options)


def test_data_sets_by_name_class_and_list():
    assert len(build_dataset(NOISY)) == 6
    assert len(build_dataset({'type': noisy.Noisy}, {'length': 7})) == 7
    many = build_dataset([NOISY, {'type': noisy.Noisy}], {'length': 3})
    assert isinstance(many, ConcatDataset)
    assert [len(part) for part in many.datasets] == [6, 3]
    built = noisy.Noisy()
    assert build_dataset(built) is built


@pytest.mark.parametrize('inner', [NOISY, noisy.Noisy(6)])
def test_data_sets_of_data_sets(inner):
    repeated = build_dataset({'type': 'RepeatDataset', 'dataset': inner, 'times': 3})
    assert isinstance(repeated, RepeatDataset)
    assert len(repeated) == 18
    twice = {'type': 'RepeatDataset', 'dataset': inner, 'times': 2}
    joined = build_dataset({'type': 'ConcatDataset', 'datasets': [inner, twice]})
    assert len(joined) == 18
    assert joined[17][0] == 5


def test_default_args_reach_nested_data_sets_and_configs_stay_as_they_were():
    cfg = {'type': 'RepeatDataset', 'dataset': {'type': noisy.Noisy}, 'times': 2}
    assert len(build_dataset(cfg, {'length': 4})) == 8
    assert cfg == {'type': 'RepeatDataset', 'dataset': {'type': noisy.Noisy}, 'times': 2}


@pytest.mark.parametrize(
    ('cfg', 'error', 'says'),
    [
        ([], ValueError, 'at least one config'),
        (None, TypeError, 'but got None'),
        ('mnist', TypeError, "but got 'mnist'"),
        ({'type': 'RepeatDatset', 'dataset': NOISY, 'times': 2}, KeyError, "did you mean 'RepeatDataset'"),
        ({'type': 'RepeatDataset', 'times': 2}, TypeError, 'dataset'),
        (
            {'type': 'RepeatDataset', 'dataset': NOISY, 'times': 0},
            ValueError,
            'times must be a whole number of at least 1, but got 0',
        ),
    ],
)
def test_data_sets_that_cannot_be_built(cfg, error, says):
    with pytest.raises(error, match=says):
        build_dataset(cfg)


def test_a_loader_as_downstream_calls_it():
    loader = build_dataloader(noisy.Noisy(10), 4, 2, 1, False, True, 1, False, True)
    assert isinstance(loader, SeededLoader)
    assert (loader.batch_size, loader.num_workers, loader.persistent_workers) == (4, 2, True)
    assert sum(indices(loader), []) == epoch_order(10, 1, 0).tolist()


@pytest.mark.parametrize(('dist', 'scale'), [(None, 3), (False, 3), (True, 1)])
def test_num_gpus_counts_where_the_run_is_not_distributed(dist, scale):
    loader = build(samples_per_gpu=2, workers_per_gpu=1, num_gpus=3, dist=dist)
    assert (loader.batch_size, loader.num_workers) == (2 * scale, scale)


def test_ranks_share_the_data(monkeypatch):
    def shares(**options):
        found = []
        for rank in range(3):
            monkeypatch.setattr('runnerkit.data.builder.get_dist_info', lambda rank=rank: (rank, 3))
            found.append(sum(indices(build(num_gpus=5, **options)), []))
        return found

    order = epoch_order(10, 1, 0).tolist()
    assert shares() == [[(order + order[:2])[i] for i in range(rank, 12, 3)] for rank in range(3)]
    assert sorted(sum(shares(round_up=False), [])) == list(range(10))
    assert shares(samples_per_gpu=3, drop_last=True) == [order[rank:9:3] for rank in range(3)]
    assert shares(dist=False) == [order] * 3
    with pytest.raises(ValueError, match='10 samples do not fill one batch of 4 on each of 3'):
        build(drop_last=True)


def test_without_shuffle():
    assert indices(build(5, 2, shuffle=False)) == [[0, 1], [2, 3], [4]]
    assert indices(build(5, 2, shuffle=False, drop_last=True)) == [[0, 1], [2, 3]]


def test_without_seed_torchs_generator_gives_one():
    state = torch.get_rng_state()
    torch.manual_seed(3)
    first = build(seed=None).seed
    assert build(seed=None).seed != first
    torch.manual_seed(3)
    assert build(seed=None).seed == first
    torch.set_rng_state(state)


@pytest.mark.parametrize('workers', [0, 1])
def test_not_seeded(workers):
    state = torch.get_rng_state()
    loader = build(seeded=False, workers_per_gpu=workers)
    assert type(loader) is DataLoader
    first = list(loader)
    assert sum(indices(first), []) == epoch_order(10, 1, 0).tolist()
    drawn = not torch.equal(torch.get_rng_state(), state)
    assert drawn == (workers == 0)  # the data set drew from the run's own stream
    if workers:
        again = list(build(seeded=False, workers_per_gpu=workers))
        assert all(torch.equal(a[1], b[1]) for a, b in zip(first, again, strict=True))
    torch.set_rng_state(state)


def test_options_for_workers_need_none():
    options = {'prefetch_factor': 4, 'multiprocessing_context': 'fork', 'timeout': 5, 'persistent_workers': True}
    assert len(indices(build(**options))) == 3
    loader = build(workers_per_gpu=1, **options)
    assert (loader.prefetch_factor, loader.timeout, loader.persistent_workers) == (4, 5, True)


def test_samplers_by_config():
    loader = build(sampler={'type': 'EpochSampler', 'shuffle': False})
    assert isinstance(loader.sampler, EpochSampler)
    assert sum(indices(loader), []) == list(range(10))
    loader = build(sampler={'type': 'DistributedSampler', 'num_replicas': 2, 'rank': 1})
    assert isinstance(loader.sampler, DistributedSampler)
    assert (loader.sampler.seed, loader.sampler.shuffle, len(loader.sampler)) == (1, True, 5)
    loader = build(sampler={'type': RandomSampler, 'num_samples': 3})
    assert len(sum(indices(loader), [])) == 3


@pytest.mark.parametrize('sampler', [None, {'type': 'SequentialSampler'}])
def test_batch_samplers_by_config(sampler):
    loader = build(sampler=sampler, batch_sampler={'type': 'BatchSampler', 'drop_last': True})
    assert [len(batch) for batch in indices(loader)] == [4, 4]
    order = list(range(8)) if sampler else epoch_order(10, 1, 0).tolist()[:8]
    assert sum(indices(loader), []) == order


def test_built_samplers_are_taken_as_they_are():
    sampler = EpochSampler(range(10), seed=5)
    assert build(sampler=sampler).sampler is sampler
    batches = BatchSampler(sampler, 3, False)
    loader = build(batch_sampler=batches)
    assert indices(loader) == list(batches)
    assert loader.batch_sampler.batch_sampler is batches


def test_streams():
    loader = build_dataloader(noisy.NoisyStream(5), 2, 0, drop_last=True)
    assert [index.tolist() for index, _ in loader] == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ('options', 'error', 'says'),
    [
        ({'length': 0}, ValueError, 'the data set Noisy is empty'),
        ({'prefetch_facter': 2}, TypeError, "'prefetch_facter'; did you mean 'prefetch_factor'"),
        ({'shufle': True}, TypeError, "'shufle'; did you mean 'shuffle'"),
        ({'zzz': 1}, TypeError, r"unexpected argument 'zzz'\. It passes to the DataLoader: .*\.$"),
        ({'samples_per_gpu': 0}, ValueError, 'samples_per_gpu must be a whole number of at least 1, but got 0'),
        ({'workers_per_gpu': -1}, ValueError, 'workers_per_gpu must be a whole number of at least 0, but got -1'),
        ({'num_gpus': '2'}, TypeError, "num_gpus must be a whole number of at least 1, but got '2'"),
        ({'length': 3, 'drop_last': True}, ValueError, '3 samples do not fill one batch of 4'),
        ({'sampler': {'type': 'RandmSampler'}}, KeyError, "did you mean 'RandomSampler'"),
    ],
)
def test_loaders_that_cannot_be_built(options, error, says):
    with pytest.raises(error, match=says):
        build(**options)


def test_registries_know_what_the_docs_name():
    assert {'ConcatDataset', 'RepeatDataset'} <= set(DATASETS.names())
    assert {'EpochSampler', 'BatchSampler', 'DistributedSampler', 'WeightedRandomSampler'} <= set(SAMPLERS.names())


def test_torchs_names_of_batch_size_and_workers_mean_the_same():
    one = build_dataloader(range(10), samples_per_gpu=4, workers_per_gpu=0, seed=3)
    other = build_dataloader(range(10), batch_size=4, workers=0, seed=3)
    assert [batch.tolist() for batch in one] == [batch.tolist() for batch in other]


@pytest.mark.parametrize(
    ('options', 'error', 'words'),
    [
        (
            dict(samples_per_gpu=4, batch_size=4, num_workers=0),
            ValueError,
            'names of the same option',
        ),
        (
            dict(batch_size=4, workers_per_gpu=0, num_workers=0),
            ValueError,
            'num_workers=0 and workers_per_gpu=0',
        ),
        (dict(batch_size=4), TypeError, 'needs workers, or num_workers or workers_per_gpu'),
        (dict(num_workers=0), TypeError, 'needs batch_size, or samples_per_gpu'),
        (dict(batch_size=0, num_workers=0), ValueError, 'batch_size must be a whole number of at least 1, but got 0'),
        (dict(samples_per_gpu=4, num_workers=-1), ValueError, 'num_workers must be a whole number of at least 0'),
    ],
)
def test_one_of_the_two_names_is_needed(options, error, words):
    with pytest.raises(error, match=words):
        build_dataloader(range(10), **options)


@pytest.mark.parametrize(
    'options',
    [
        {},
        {'seeded': False},
        {'sampler': {'type': 'RandomSampler'}},
        {'sampler': {'type': 'EpochSampler'}},
        {'seeded': False, 'sampler': {'type': 'RandomSampler'}},
        {'batch_sampler': {'type': 'BatchSampler'}, 'drop_last': True},
    ],
)
def test_a_limit_of_batches_holds_for_every_kind_of_loader(options):
    limited, whole = build(20, max_batches=2, **options), build(20, **options)
    assert limited.max_batches == len(limited) == 2
    torch.manual_seed(1)
    found = indices(limited)
    torch.manual_seed(1)
    assert found == indices(whole)[:2]
    more = build(5, max_batches=3, **{**options, 'drop_last': False})
    assert len(more) == len(indices(more)) == 2


@pytest.mark.parametrize('workers', [0, 2])
def test_a_limited_stream_has_a_length(workers):
    options = {'persistent_workers': True} if workers else {}
    limited = build_dataloader(noisy.NoisyStream(40), 2, workers, seed=1, max_batches=3, **options)
    whole = build_dataloader(noisy.NoisyStream(40), 2, workers, seed=1)
    assert len(limited) == 3
    for epoch in range(2):
        for loader in (limited, whole):
            loader.set_epoch(epoch)
        assert [index.tolist() for index, _ in limited] == [index.tolist() for index, _ in whole][:3]
    assert [index.tolist() for index, _ in limited.enter(1, 1)] == indices(limited)[1:]


@pytest.mark.parametrize('limit, error', [(0, ValueError), (2.5, TypeError), (True, TypeError)])
def test_limits_that_are_none(limit, error):
    with pytest.raises(error, match='max_batches must be a whole number of at least 1'):
        build(max_batches=limit)


def test_a_stream_without_seeds_has_no_limit():
    with pytest.raises(ValueError, match='leave out one of max_batches and seeded=False'):
        build_dataloader(noisy.NoisyStream(40), 2, 0, seeded=False, max_batches=3)
