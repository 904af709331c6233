"""Typical loaders, samplers, data sets and workflows, for `faults.py --loaders`.

Each entry of `KINDS` builds loaders with a workflow. A resumed run over them must end with the bits of an uninterrupted
one, or warn at the resume that it may not. Some of the parts (loader_parts/) hide their state on purpose, to test the
second case; some hide it so deep that nothing tells.
"""

import functools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from loader_parts.data_sets import (
    LENGTH,
    OF_THE_MODULE,
    SHORT,
    ClassGenerator,
    Counting,
    Curriculum,
    Drawn,
    GoesOn,
    Grouping,
    LazyFile,
    ManyAtOnce,
    Memoized,
    Mosaic,
    Noisy,
    OneAfterTheOther,
    OwnBatches,
    OwnGenerator,
    Reordered,
    Shrinking,
    ShuffleBuffer,
    Stream,
    StreamWithState,
    WithState,
    everybodys,
    numpys,
    points,
    pythons,
    torchs,
)
from loader_parts.hooks import Harder, SetsEpoch, SetsLength, Shuffles, Weighs
from loader_parts.loaders import (
    Ahead,
    Around,
    Endless,
    KeepsIterator,
    Mixup,
    Paired,
    Resampled,
    Stateful,
    WithUnlabelled,
    batches,
    mixed,
    mixup_closure,
    set_numpy_seed,
)
from loader_parts.runners import OwnRun, OwnRunIter, OwnTrain, OwnTrainByIter
from loader_parts.samplers import (
    Buckets,
    ClassAware,
    CountsEpochs,
    Cycles,
    Grouped,
    HardExamples,
    Infinite,
    Lazy,
    OfEpoch,
    Own,
    OwnBatchSampler,
    SamplerWithState,
    Wraps,
)
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
    random_split,
)

from runnerkit.data import RepeatDataset, build_dataloader
from runnerkit.hooks import DistSamplerSeedHook, EvalHook, Hook, OptimizerHook
from runnerkit.runner import EpochBasedRunner, IterBasedRunner


class Plan(NamedTuple):
    """The objects of a kind: a loader for each entry of the workflow, and hooks."""

    loaders: list[Any]
    by_epoch: list[tuple[str, int]] = [('train', 1)]
    by_iter: list[tuple[str, int]] | None = None
    hooks: list[Hook] = []

    def workflow(self, runner):
        """The workflow for the runner of this name."""
        return self.by_iter if runner == 'iter' and self.by_iter else self.by_epoch


BOTH = {'epoch': EpochBasedRunner, 'iter': IterBasedRunner}
EPOCH, ITER = {'epoch': EpochBasedRunner}, {'iter': IterBasedRunner}


@dataclass(frozen=True)
class Kind:
    """A row of the table.

    Attributes:
        build: builds new parts; the process's generators are always seeded with the same value before.
        quiet: whether the runner can see all of its state, so that no message is due.
        is_deep: whether a part of its state lies where no resume looks for it, which docs/concepts/exact_resume.md
            says, so that it may differ without a message.
        runners: the runners for it, by name.
        limit: the length of the run; by default three epochs, or as many iterations.
    """

    build: Callable[[], Plan]
    quiet: bool = False
    is_deep: bool = False
    runners: Mapping[str, Any] = field(default_factory=lambda: BOTH)
    limit: Mapping[str, int] | None = None


def ours(dataset=None, workers=0, **options):
    return build_dataloader(Noisy() if dataset is None else dataset, 4, workers, seed=5, **options)


def torchs_own(dataset=None, workers=0, **options):
    return DataLoader(
        points() if dataset is None else dataset, options.pop('batch_size', 4), num_workers=workers, **options
    )


def seeded(seed=3):
    return torch.Generator().manual_seed(seed)


def one(loader, *hooks):
    return Plan([loader], hooks=[*hooks])


def val(train, other):
    """Training and validation."""
    return Plan([train, other], [('train', 1), ('val', 1)], [('train', 3), ('val', 2)])


def shuffled(dataset=None, workers=0, **options):
    return torchs_own(dataset, workers, shuffle=True, **options)


def evaluated(loader):
    """Training with an EvalHook; its epochs have five iterations."""
    return Plan([shuffled()], hooks=[EvalHook(loader, interval=3, by_epoch=False, save_best='loss')])


def shared_by_two():
    generator = seeded()
    return val(shuffled(generator=generator), shuffled(points(SHORT), generator=generator))


def shared_with_dataset():
    generator = seeded()
    return one(shuffled(OwnGenerator('torch', generator), generator=generator))


def two_trainings(make):
    return Plan([make(3), make(4)], [('train', 1), ('gen', 1)], [('train', 3), ('gen', 2)])


def twice_the_same():
    loader = shuffled(generator=seeded())
    return Plan([loader, loader], [('train', 1), ('gen', 1)], [('train', 3), ('gen', 2)])


def with_sampler_hook():
    sampler = OfEpoch()
    return one(torchs_own(sampler=sampler), SetsEpoch(sampler))


def with_dataset_hook(kind, hook, **options):
    dataset = kind()
    return one(torchs_own(dataset, **options), hook(dataset))


def mined():
    sampler = HardExamples()
    return one(torchs_own(sampler=sampler), Weighs(sampler))


def split():
    parts = random_split(points(), [LENGTH - 4, 4])
    return val(shuffled(parts[0]), torchs_own(parts[1], batch_size=2))


MOST = {'max_iters': 13}

KINDS: dict[str, Kind] = {
    # runnerkit's own loaders
    'build_dataloader': Kind(lambda: one(ours()), quiet=True),
    'build_dataloader, 2 workers': Kind(lambda: one(ours(workers=2)), quiet=True),
    'build_dataloader, 2 persistent workers': Kind(lambda: one(ours(workers=2, persistent_workers=True)), quiet=True),
    'build_dataloader, not shuffled': Kind(lambda: one(ours(shuffle=False)), quiet=True),
    'build_dataloader, drop_last': Kind(lambda: one(ours(Noisy(length=LENGTH + 3), drop_last=True)), quiet=True),
    'build_dataloader, not seeded': Kind(lambda: one(ours(seeded=False)), quiet=True),
    'build_dataloader, not seeded, 2 workers': Kind(lambda: one(ours(workers=2, seeded=False))),
    'build_dataloader, sampler from a config': Kind(
        lambda: one(ours(sampler={'type': WeightedRandomSampler, 'weights': [1.0, 2.0] * 10, 'num_samples': LENGTH})),
        quiet=True,
    ),
    'build_dataloader, batch sampler from a config': Kind(
        lambda: one(ours(batch_sampler={'type': OwnBatchSampler})), quiet=True
    ),
    'build_dataloader, sampler with random.Random': Kind(lambda: one(ours(sampler=Own('python'))), quiet=True),
    'build_dataloader, sampler with a generator, 2 workers': Kind(
        lambda: one(ours(workers=2, sampler=Own('torch'))), quiet=True
    ),
    'build_dataloader, sampler that counts': Kind(lambda: one(ours(sampler=CountsEpochs())), is_deep=True),
    'build_dataloader, RepeatDataset': Kind(lambda: one(ours(RepeatDataset(Noisy(length=10), 2))), quiet=True),
    'build_dataloader, ConcatDataset': Kind(
        lambda: one(ours(ConcatDataset([Noisy(length=8), Noisy(pythons, 12)]))), quiet=True
    ),
    'build_dataloader, data set with a generator': Kind(lambda: one(ours(OwnGenerator('numpy'))), quiet=True),
    'build_dataloader, data set with a generator, 2 workers': Kind(lambda: one(ours(OwnGenerator('torch'), 2))),
    'build_dataloader, mixup object': Kind(lambda: one(ours(collate_fn=Mixup('numpy'))), quiet=True),
    'build_dataloader, data set that counts': Kind(lambda: one(ours(Counting())), is_deep=True),
    'build_dataloader, stream': Kind(lambda: one(ours(Stream(everybodys)))),
    'build_dataloader, stream, 2 workers': Kind(lambda: one(ours(Stream(everybodys), 2))),
    'build_dataloader, train and val': Kind(lambda: val(ours(), ours(Noisy(length=SHORT))), quiet=True),
    # torch's DataLoader
    'DataLoader': Kind(lambda: one(torchs_own()), quiet=True),
    'DataLoader, shuffle': Kind(lambda: one(shuffled()), quiet=True),
    'DataLoader, shuffle, generator': Kind(lambda: one(shuffled(generator=seeded())), quiet=True),
    'DataLoader, shuffle, 2 workers': Kind(lambda: one(shuffled(workers=2)), quiet=True),
    'DataLoader, shuffle, generator, 2 workers': Kind(lambda: one(shuffled(workers=2, generator=seeded())), quiet=True),
    'DataLoader, noise from torch': Kind(lambda: one(shuffled(Noisy(torchs))), quiet=True),
    'DataLoader, noise from random': Kind(lambda: one(shuffled(Noisy(pythons))), quiet=True),
    'DataLoader, noise from numpy': Kind(lambda: one(shuffled(Noisy(numpys))), quiet=True),
    'DataLoader, noise from torch, 2 workers': Kind(lambda: one(shuffled(Noisy(torchs), 2))),
    'DataLoader, noise from random, 2 workers': Kind(lambda: one(shuffled(Noisy(pythons), 2))),
    'DataLoader, noise from numpy, 2 workers, worker_init_fn': Kind(
        lambda: one(shuffled(Noisy(numpys), 2, worker_init_fn=set_numpy_seed))
    ),
    'DataLoader, persistent workers': Kind(lambda: one(shuffled(workers=2, persistent_workers=True))),
    'DataLoader, persistent workers, noise': Kind(lambda: one(shuffled(Noisy(), 2, persistent_workers=True))),
    'DataLoader, persistent workers for val': Kind(
        lambda: val(shuffled(), shuffled(Noisy(length=SHORT), 2, persistent_workers=True))
    ),
    'DataLoader, shuffling val': Kind(lambda: val(shuffled(), shuffled(Noisy(length=SHORT))), quiet=True),
    'DataLoader, drop_last, pin_memory, prefetch_factor': Kind(
        lambda: one(shuffled(points(LENGTH + 3), 2, drop_last=True, pin_memory=True, prefetch_factor=4)), quiet=True
    ),
    'DataLoader, multiprocessing_context': Kind(lambda: one(shuffled(workers=1, multiprocessing_context='fork'))),
    'DataLoader, batch_size None': Kind(
        lambda: one(DataLoader([*batches()], batch_size=None, shuffle=True)), quiet=True
    ),
    'DataLoader, random_split': Kind(split, quiet=True),
    'DataLoader, a subclass with an __iter__': Kind(lambda: one(Resampled(Noisy(), 4, shuffle=True))),
    'DataLoader that keeps its iterator': Kind(lambda: one(KeepsIterator(points(), 4, shuffle=True))),
    'DataLoader that keeps its iterator, noise, 2 workers': Kind(
        lambda: one(KeepsIterator(Noisy(), 4, shuffle=True, num_workers=2))
    ),
    # samplers
    'WeightedRandomSampler': Kind(
        lambda: one(torchs_own(sampler=WeightedRandomSampler([1.0, 2.0] * 10, LENGTH))), quiet=True
    ),
    'WeightedRandomSampler, generator': Kind(
        lambda: one(torchs_own(sampler=WeightedRandomSampler([1.0, 2.0] * 10, LENGTH, generator=seeded()))), quiet=True
    ),
    'RandomSampler, replacement': Kind(
        lambda: one(torchs_own(sampler=RandomSampler(range(LENGTH), replacement=True))), quiet=True
    ),
    'SubsetRandomSampler': Kind(lambda: one(torchs_own(sampler=SubsetRandomSampler(range(2, LENGTH)))), quiet=True),
    'DistributedSampler': Kind(
        lambda: one(
            torchs_own(sampler=DistributedSampler(range(LENGTH), num_replicas=1, rank=0)), DistSamplerSeedHook()
        ),
        quiet=True,
    ),
    'sampler with set_epoch': Kind(with_sampler_hook, runners=EPOCH),
    'sampler with set_epoch, 2 workers': Kind(lambda: one(torchs_own(workers=2, sampler=OfEpoch()))),
    'BatchSampler': Kind(
        lambda: one(DataLoader(points(), batch_sampler=BatchSampler(RandomSampler(range(LENGTH)), 4, False))),
        quiet=True,
    ),
    'BatchSampler as a sampler': Kind(
        lambda: one(
            DataLoader(points(), batch_size=None, sampler=BatchSampler(SequentialSampler(range(LENGTH)), 4, False))
        ),
        quiet=True,
    ),
    'sampler with random.Random': Kind(lambda: one(torchs_own(sampler=Own('python')))),
    'sampler with np.random.Generator': Kind(lambda: one(torchs_own(sampler=Own('numpy')))),
    'sampler with RandomState': Kind(lambda: one(torchs_own(sampler=Own('RandomState')))),
    'sampler with torch.Generator': Kind(lambda: one(torchs_own(sampler=Own('torch')))),
    'sampler in a sampler': Kind(lambda: one(torchs_own(sampler=Wraps(Own('numpy'))))),
    'batch sampler with np.random.Generator': Kind(lambda: one(DataLoader(points(), batch_sampler=OwnBatchSampler()))),
    'batch sampler with batches of any size': Kind(lambda: one(DataLoader(points(), batch_sampler=Buckets()))),
    'list of indices as a sampler': Kind(lambda: one(torchs_own(sampler=[*range(LENGTH)][::-1])), quiet=True),
    'GroupSampler': Kind(lambda: one(torchs_own(sampler=Grouped()))),
    'sampler that counts': Kind(lambda: one(torchs_own(sampler=CountsEpochs()))),
    'sampler with state_dict': Kind(lambda: one(torchs_own(sampler=SamplerWithState()))),
    'infinite batch sampler': Kind(lambda: one(DataLoader(points(), batch_sampler=Infinite())), limit=MOST),
    'sampler that draws lazily': Kind(lambda: one(torchs_own(sampler=Lazy()))),
    'sampler that draws lazily, 2 workers': Kind(lambda: one(torchs_own(workers=2, sampler=Lazy()))),
    'sampler that cycles': Kind(lambda: one(torchs_own(sampler=Cycles()))),
    'class-aware sampler': Kind(lambda: one(torchs_own(sampler=ClassAware()))),
    'sampler by losses': Kind(mined),
    # data sets
    'data set with torch.Generator': Kind(lambda: one(shuffled(OwnGenerator('torch'))), quiet=True),
    'data set with random.Random': Kind(lambda: one(shuffled(OwnGenerator('python'))), quiet=True),
    'data set with np.random.Generator': Kind(lambda: one(shuffled(OwnGenerator('numpy'))), quiet=True),
    'data set with a generator, 2 workers': Kind(lambda: one(shuffled(OwnGenerator('numpy'), 2))),
    'data set with a generator, 2 persistent workers': Kind(
        lambda: one(shuffled(OwnGenerator('torch'), 2, persistent_workers=True))
    ),
    'data set with a transform with a generator': Kind(lambda: one(shuffled(Noisy(Drawn('python')))), is_deep=True),
    'Subset of a data set with a generator': Kind(
        lambda: one(shuffled(Subset(OwnGenerator('python'), range(2, LENGTH))))
    ),
    'ConcatDataset of data sets with generators': Kind(
        lambda: one(shuffled(ConcatDataset([OwnGenerator('python'), OwnGenerator('numpy')]))), limit=MOST, is_deep=True
    ),
    'data set that counts': Kind(lambda: one(shuffled(Counting())), is_deep=True),
    'data set that counts, 2 workers': Kind(lambda: one(shuffled(Counting(), 2))),
    'data set with a changing cache': Kind(lambda: one(shuffled(Mosaic())), is_deep=True),
    'data set with a memory': Kind(lambda: one(shuffled(Memoized())), is_deep=True),
    'data set with state_dict': Kind(lambda: one(shuffled(WithState()))),
    'data set with a generator of its class': Kind(lambda: one(shuffled(ClassGenerator())), is_deep=True),
    'data set with a generator of its module': Kind(
        lambda: one(shuffled(Noisy(lambda: OF_THE_MODULE.random()))), is_deep=True
    ),
    'data set with __getitems__': Kind(lambda: one(shuffled(ManyAtOnce())), quiet=True),
    'build_dataloader, data set with a generator of its module': Kind(
        lambda: one(ours(Noisy(lambda: OF_THE_MODULE.random()))), is_deep=True
    ),
    'data set with a lazily opened file': Kind(lambda: one(shuffled(LazyFile())), quiet=True),
    'data set that reads on in a file': Kind(lambda: one(shuffled(OneAfterTheOther())), is_deep=True),
    'data set that a hook makes harder': Kind(
        lambda: with_dataset_hook(Curriculum, Harder, shuffle=True), is_deep=True
    ),
    'data set of changing length': Kind(
        lambda: with_dataset_hook(Shrinking, SetsLength, shuffle=True), runners=EPOCH, is_deep=True
    ),
    'data set that a hook shuffles': Kind(lambda: with_dataset_hook(Reordered, Shuffles), runners=EPOCH, is_deep=True),
    # collate functions
    'collate function, closure': Kind(lambda: one(shuffled(collate_fn=mixup_closure())), is_deep=True),
    'collate function, partial': Kind(
        lambda: one(shuffled(collate_fn=functools.partial(mixed, draw=random.Random(3).random))), is_deep=True
    ),
    'collate function, object': Kind(lambda: one(shuffled(collate_fn=Mixup('python'))), quiet=True),
    'collate function, object with torch.Generator': Kind(lambda: one(shuffled(collate_fn=Mixup('torch'))), quiet=True),
    'collate function, method': Kind(lambda: one(shuffled(collate_fn=Mixup('numpy').collate)), is_deep=True),
    'collate function, object, 2 workers': Kind(lambda: one(shuffled(workers=2, collate_fn=Mixup('numpy')))),
    # shared parts, several loaders
    'one generator, two loaders': Kind(shared_by_two, quiet=True),
    'one generator, sampler and data set': Kind(shared_with_dataset, quiet=True),
    'two trainings with generators': Kind(
        lambda: two_trainings(lambda seed: shuffled(generator=seeded(seed))), quiet=True
    ),
    'two trainings': Kind(lambda: two_trainings(lambda seed: shuffled()), quiet=True),
    'two trainings, samplers with generators': Kind(
        lambda: two_trainings(lambda seed: torchs_own(sampler=Own('python')))
    ),
    'two trainings, stateful loaders': Kind(lambda: two_trainings(lambda seed: Stateful()), quiet=True),
    'one loader in two entries': Kind(twice_the_same, quiet=True),
    'two epochs, one validation': Kind(
        lambda: Plan([shuffled(), shuffled()], [('train', 2), ('val', 1)], [('train', 7), ('val', 5)]), quiet=True
    ),
    # streams
    'stream': Kind(lambda: one(torchs_own(Stream()))),
    'stream with noise': Kind(lambda: one(torchs_own(Stream(everybodys)))),
    'stream, 2 workers': Kind(lambda: one(torchs_own(Stream(), 2))),
    'stream with noise, 2 workers': Kind(lambda: one(torchs_own(Stream(everybodys), 2))),
    'stream with a shuffle buffer': Kind(lambda: one(torchs_own(ShuffleBuffer()))),
    'stream with a shuffle buffer and a generator': Kind(lambda: one(torchs_own(ShuffleBuffer(random.Random(3))))),
    'stream that continues': Kind(lambda: one(torchs_own(GoesOn()))),
    'stream with state_dict': Kind(lambda: one(torchs_own(StreamWithState()))),
    'stream that groups': Kind(lambda: one(DataLoader(Grouping(), batch_size=None)), limit={'max_iters': 11}),
    'stream of batches': Kind(lambda: one(DataLoader(OwnBatches(), batch_size=None))),
    # custom loaders
    'stateful loader': Kind(lambda: one(Stateful()), quiet=True),
    'stateful loader for val': Kind(lambda: val(shuffled(), Stateful()), quiet=True),
    'list of batches': Kind(lambda: one([*batches()]), quiet=True),
    'tuple of batches': Kind(lambda: one(tuple(batches())), quiet=True),
    'generator': Kind(lambda: one(batches(20)), limit=MOST),
    'wrapper around a loader': Kind(lambda: one(Around(shuffled()))),
    'wrapper around a loader with noise': Kind(lambda: one(Around(shuffled(Noisy())))),
    'wrapper around build_dataloader': Kind(lambda: one(Around(ours()))),
    'prefetcher': Kind(lambda: one(Ahead(shuffled(Noisy())))),
    'prefetcher, generator': Kind(lambda: one(Ahead(shuffled(generator=seeded())))),
    'pair of loaders': Kind(lambda: one(Paired(shuffled(), shuffled(Noisy())))),
    'two loaders, one in a cycle': Kind(lambda: one(WithUnlabelled(shuffled(), shuffled(points(SHORT))))),
    'endless loader': Kind(lambda: one(Endless()), limit=MOST),
    # runs
    'EvalHook, shuffled': Kind(lambda: evaluated(shuffled(Noisy(length=SHORT))), quiet=True),
    'EvalHook, generator': Kind(lambda: evaluated(shuffled(points(SHORT), generator=seeded())), quiet=True),
    'EvalHook, persistent workers': Kind(lambda: evaluated(shuffled(Noisy(length=SHORT), 2, persistent_workers=True))),
    'EvalHook, sampler that counts': Kind(lambda: evaluated(torchs_own(sampler=CountsEpochs()))),
    'max_iters': Kind(lambda: one(shuffled()), quiet=True, limit=MOST),
    'max_epochs': Kind(lambda: one(shuffled()), quiet=True, limit={'max_epochs': 3}),
    'accumulation': Kind(lambda: one(shuffled(), OptimizerHook(cumulative_iters=3)), quiet=True),
    'runner with a custom train': Kind(lambda: one(shuffled()), runners={'epoch': OwnTrain, 'iter': OwnTrainByIter}),
    'runner with a custom train, build_dataloader': Kind(
        lambda: one(ours()), runners={'epoch': OwnTrain, 'iter': OwnTrainByIter}
    ),
    'runner with custom run and call_hook': Kind(lambda: one(shuffled()), runners={'iter': OwnRun}),
    'runner with custom run and call_hook, val': Kind(
        lambda: val(shuffled(), shuffled(points(SHORT))), runners={'iter': OwnRun}
    ),
    'runner with a custom step': Kind(lambda: one(shuffled()), quiet=True, runners={'epoch': OwnRunIter}),
}
