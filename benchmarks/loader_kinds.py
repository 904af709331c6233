"""Loaders, samplers, data sets and workflows as people write them, for `faults.py --loaders`.

Each entry of `KINDS` builds loaders with a workflow. A resumed run over them must end with the bits of an uninterrupted
one, or say at the resume that it may not. Some of these parts hide their state on purpose, to test the second case.
"""

import functools
import itertools
import os
import random
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    get_worker_info,
    random_split,
)

from runnerkit.data import RepeatDataset, build_dataloader
from runnerkit.hooks import DistSamplerSeedHook, EvalHook, Hook, OptimizerHook
from runnerkit.runner import EpochBasedRunner, IterBasedRunner, IterLoader

#: Of a training data set and of one for validation; batches have 4 samples.
LENGTH, SHORT = 20, 12


# --- data sets -------------------------------------------------------------------------------------------------------


def point(i):
    """An input that no other index has, and its target."""
    return torch.tensor([np.sin(i), np.cos(i), i / LENGTH, 1.0], dtype=torch.float32), torch.tensor([float(i % 2)])


def shifted(i, shift):
    x, y = point(i)
    return x + shift, y


def points(length=LENGTH):
    return TensorDataset(*(torch.stack(part) for part in zip(*map(point, range(length)), strict=True)))


def torchs():
    return float(torch.rand(()))


def pythons():
    return random.random()


def numpys():
    return float(np.random.rand())


def everybodys():
    return torchs() + pythons() + numpys()


class Drawn:
    """A source of numbers that owns its generator, of the library that is asked for."""

    def __init__(self, library, seed=3):
        self.generator = {
            'torch': torch.Generator().manual_seed(seed),
            'python': random.Random(seed),
            'numpy': np.random.default_rng(seed),
            'RandomState': np.random.RandomState(seed),
        }[library]

    def __call__(self):
        if isinstance(self.generator, torch.Generator):
            return float(torch.rand((), generator=self.generator))
        return float(self.generator.random())

    def order(self, n):
        if isinstance(self.generator, torch.Generator):
            return torch.randperm(n, generator=self.generator).tolist()
        if isinstance(self.generator, random.Random):
            return self.generator.sample(range(n), n)
        return self.generator.permutation(n).tolist()


class Noisy(Dataset):
    """Points with noise: ``draw()`` for each sample."""

    def __init__(self, draw=everybodys, length=LENGTH):
        self.draw = draw
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        if not 0 <= i < self.length:
            raise IndexError(i)
        return shifted(i, self.draw())


class OwnGenerator(Dataset):
    """Augments by a generator that it keeps as an attribute."""

    def __init__(self, library, generator=None):
        self.rng = Drawn(library).generator if generator is None else generator

    def __len__(self):
        return LENGTH

    def __getitem__(self, i):
        if isinstance(self.rng, torch.Generator):
            return shifted(i, float(torch.rand((), generator=self.rng)))
        return shifted(i, float(self.rng.random()))


#: A generator that no object holds.
OF_THE_MODULE = random.Random(3)


class ClassGenerator(Noisy):
    """Its generator is its class's, which all instances share."""

    rng = random.Random(3)

    def __getitem__(self, i):
        return shifted(i, self.rng.random())


class ManyAtOnce(Noisy):
    """Gives all samples of a batch in one call, as torch allows."""

    def __getitems__(self, indices):
        shift = self.draw()
        return [shifted(i, shift) for i in indices]


class Counting(Noisy):
    """Warms its augmentation up by counting its calls."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def __getitem__(self, i):
        self.calls += 1
        return shifted(i, self.calls / 100)


class Mosaic(Noisy):
    """Mixes each sample with one of the last four that it gave, as mosaic caches do."""

    def __init__(self):
        super().__init__()
        self.results = []

    def __getitem__(self, i):
        x, y = point(i)
        self.results = [*self.results, x][-4:]
        return (x + random.choice(self.results)) / 2, y


class Memoized(Noisy):
    """Augments each sample once, at its first use."""

    def __init__(self):
        super().__init__()
        self.shift = functools.lru_cache(maxsize=None)(lambda i: random.random())

    def __getitem__(self, i):
        return shifted(i, self.shift(i))


class LazyFile(Noisy):
    """Opens its file at the first sample, once in each process, as h5py and lmdb data sets do."""

    def __init__(self):
        super().__init__()
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.write(bytes(range(LENGTH)))
        self.path, self.file = file.name, None

    def __getitem__(self, i):
        if self.file is None:
            self.file = open(self.path, 'rb')  # noqa: SIM115 (kept open)
            os.unlink(self.path)
        self.file.seek(int(i))
        return point(self.file.read(1)[0])


class OneAfterTheOther(LazyFile):
    """Reads on in its file, whatever index it is asked for; from the start again when it is through."""

    def __getitem__(self, i):
        if self.file is None:
            super().__getitem__(0)
        text = self.file.read(1)
        if not text:
            self.file.seek(0)
            text = self.file.read(1)
        return point(text[0])


class Curriculum(Noisy):
    """Gets harder as a hook says."""

    difficulty = 0.0

    def __getitem__(self, i):
        return shifted(i, self.difficulty)


class Shrinking(Noisy):
    """One batch less in each epoch; a hook says which."""

    epoch = 0

    def __len__(self):
        return LENGTH - 4 * self.epoch

    def __getitem__(self, i):
        return point(i)


class Reordered(Noisy):
    """A list that a hook shuffles in place at each epoch's beginning."""

    def __init__(self):
        super().__init__()
        self.items = list(range(LENGTH))

    def __getitem__(self, i):
        return point(self.items[i])


class WithState(Counting):
    """Counts its calls, and can say how many there were."""

    def state_dict(self):
        return {'calls': self.calls}

    def load_state_dict(self, state):
        self.calls = state['calls']


class Stream(IterableDataset):
    """Points one after the other, every worker its share of them."""

    def __init__(self, draw=lambda: 0.0):
        self.draw = draw

    def __iter__(self):
        worker = get_worker_info()
        start, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for i in range(start, LENGTH, step):
            yield shifted(i, self.draw())


class ShuffleBuffer(Stream):
    """Keeps eight samples and gives one of them at random."""

    def __init__(self, rng=random):
        super().__init__()
        self.rng = rng

    def __iter__(self):
        kept = []
        for sample in super().__iter__():
            kept.append(sample)
            if len(kept) == 8:
                yield kept.pop(self.rng.randrange(8))
        self.rng.shuffle(kept)
        yield from kept


class GoesOn(Stream):
    """A stream without an end, 18 samples a pass, which goes on where the last pass stopped."""

    def __init__(self):
        super().__init__()
        self.position = 0

    def __iter__(self):
        for _ in range(18):
            self.position += 1
            yield point(self.position)


class Grouping(Stream):
    """detectron2's aspect-ratio grouping: what does not fill a batch waits for the next pass."""

    def __init__(self):
        super().__init__()
        self.buckets = [[], [], []]

    def __iter__(self):
        for sample in super().__iter__():
            bucket = self.buckets[int(10 * sample[0][2]) % 3]
            bucket.append(sample)
            if len(bucket) == 4:
                yield default_collate(bucket)
                del bucket[:]


class OwnBatches(Stream):
    """Makes its batches itself, of two to four samples."""

    def __iter__(self):
        start = 0
        while start < LENGTH:
            size = 2 + start % 3
            yield default_collate([point(i) for i in range(start, start + size)])
            start += size


class StreamWithState(Stream):
    """Can say how far it is, and go on there."""

    def __init__(self):
        super().__init__()
        self.done = 0

    def __iter__(self):
        while self.done < LENGTH:
            self.done += 1
            yield point(self.done)
        self.done = 0

    def state_dict(self):
        return {'done': self.done}

    def load_state_dict(self, state):
        self.done = state['done']


# --- samplers --------------------------------------------------------------------------------------------------------


class Own(Sampler):
    """An order from a generator that it keeps."""

    def __init__(self, library):
        self.rng = Drawn(library).generator

    def __len__(self):
        return LENGTH

    def __iter__(self):
        order = list(range(LENGTH))
        if isinstance(self.rng, torch.Generator):
            order = torch.randperm(LENGTH, generator=self.rng).tolist()
        else:
            self.rng.shuffle(order)
        return iter(order)


class Wraps(Sampler):
    """A sampler in a sampler, under a name of its own choice, as class-balanced and distributed wrappers are."""

    def __init__(self, inner):
        self.wrapped = {'inner': inner}

    def __len__(self):
        return len(self.wrapped['inner'])

    def __iter__(self):
        return iter([*self.wrapped['inner']][::-1])


class CountsEpochs(Sampler):
    """Its own epoch counter seeds its order."""

    def __init__(self):
        self.passes = 0

    def __len__(self):
        return LENGTH

    def __iter__(self):
        self.passes += 1
        return iter(random.Random(self.passes).sample(range(LENGTH), LENGTH))


class OfEpoch(Sampler):
    """A pure function of the epoch that ``set_epoch`` was told, each index twice (repeated augmentation)."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return LENGTH

    def __iter__(self):
        order = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(self.epoch))
        return iter(order.repeat_interleave(2)[:LENGTH].tolist())


class Infinite(Sampler):
    """mmdet's infinite batch samplers: one endless generator, which all iterations share."""

    batch_size = 4

    def __init__(self):
        self.indices = self._endless()

    def _endless(self):
        generator = torch.Generator().manual_seed(3)
        while True:
            yield from torch.randperm(LENGTH, generator=generator).tolist()

    def __len__(self):
        return LENGTH // self.batch_size

    def __iter__(self):
        while True:
            yield [next(self.indices) for _ in range(self.batch_size)]


class Lazy(Sampler):
    """Draws each index when it is asked for it."""

    def __len__(self):
        return LENGTH

    def __iter__(self):
        for _ in range(LENGTH):
            yield random.randrange(LENGTH)


class Grouped(Sampler):
    """mmdet's GroupSampler: numpy's global generator, all at once."""

    def __len__(self):
        return LENGTH

    def __iter__(self):
        groups = [np.random.permutation(np.arange(start, LENGTH, 2)) for start in range(2)]
        return iter(np.concatenate(groups).tolist())


class ClassAware(Sampler):
    """Goes round the classes and, within each, round a list that is shuffled when it is through."""

    def __init__(self):
        self.classes = [list(range(k, LENGTH, 3)) for k in range(3)]
        self.at = [0, 0, 0]

    def __len__(self):
        return LENGTH

    def __iter__(self):
        for i in range(LENGTH):
            k = i % 3
            if self.at[k] == 0:
                random.shuffle(self.classes[k])
            yield self.classes[k][self.at[k]]
            self.at[k] = (self.at[k] + 1) % len(self.classes[k])


class Cycles(Sampler):
    """Goes round an order for ever by ``itertools.cycle``; a pass is a part of it."""

    def __init__(self):
        self.order = itertools.cycle(random.sample(range(LENGTH), LENGTH - 3))

    def __len__(self):
        return LENGTH

    def __iter__(self):
        return itertools.islice(self.order, LENGTH)


class HardExamples(Sampler):
    """Draws by weights that a hook changes."""

    def __init__(self):
        self.weights = [1.0] * LENGTH

    def __len__(self):
        return LENGTH

    def __iter__(self):
        return iter(torch.multinomial(torch.tensor(self.weights), LENGTH, replacement=True).tolist())


class SamplerWithState(CountsEpochs):
    """Counts its passes, and can say how many there were."""

    def state_dict(self):
        return {'passes': self.passes}

    def load_state_dict(self, state):
        self.passes = state['passes']


class OwnBatchSampler:
    """Batches of one parity, in an order from numpy; not a subclass of anything."""

    def __init__(self, dataset=None):
        self.rng = np.random.default_rng(3)

    def __len__(self):
        return 6

    def __iter__(self):
        batches = [list(range(k, LENGTH, 2))[i : i + 4] for k in range(2) for i in range(0, LENGTH // 2, 4)]
        return iter([batches[i] for i in self.rng.permutation(len(batches))])


class Buckets(OwnBatchSampler):
    """Batches of 2, 3, 4 … samples, each epoch another number of them."""

    def __iter__(self):
        order = torch.randperm(LENGTH).tolist()
        while order:
            size = int(torch.randint(2, 6, ()))
            size += len(order) == size + 1  # no batch of one
            yield order[:size]
            order = order[size:]


# --- loaders ---------------------------------------------------------------------------------------------------------


class Stateful:
    """torchdata's StatefulDataLoader, in small: it says at any time where it is, after an epoch's end, too."""

    def __init__(self):
        self.rng = random.Random(3)
        self.done, self.began, self.goes_on = 0, self.rng.getstate(), False

    def __len__(self):
        return LENGTH // 4

    def __iter__(self):
        if not self.goes_on:
            self.done, self.began = 0, self.rng.getstate()
        self.goes_on = False
        self.rng.setstate(self.began)
        order = self.rng.sample(range(LENGTH), LENGTH)
        while self.done < len(self):
            at = 4 * self.done
            self.done += 1
            yield default_collate([point(i) for i in order[at : at + 4]])
        self.done = 0
        self.began = self.rng.getstate()

    def state_dict(self):
        return {'done': self.done, 'began': self.began}

    def load_state_dict(self, state):
        version, words, gauss = state['began']
        self.done, self.began, self.goes_on = state['done'], (version, tuple(words), gauss), True
        self.rng.setstate(self.began)


class Around:
    """A wrapper with a length around any loader, as augmenting wrappers on the GPU are."""

    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def __iter__(self):
        for x, y in self.inner:
            yield x * 2, y


class Ahead(Around):
    """apex's prefetcher: always one batch ahead of the training."""

    def __iter__(self):
        batches = iter(self.inner)
        waiting = next(batches, None)
        while waiting is not None:
            batch, waiting = waiting, next(batches, None)
            yield batch


class Paired:
    """One batch of each of two loaders, labelled and not."""

    def __init__(self, one, other):
        self.one, self.other = one, other

    def __len__(self):
        return min(len(self.one), len(self.other))

    def __iter__(self):
        for (x, y), (other, _) in zip(self.one, self.other, strict=False):
            yield x + other, y


class WithUnlabelled(Paired):
    """A second loader beside the first, in a cycle of its own that passes of the first do not end."""

    waiting = None

    def __iter__(self):
        for x, y in self.one:
            batch = None if self.waiting is None else next(self.waiting, None)
            if batch is None:
                self.waiting = iter(self.other)
                batch = next(self.waiting)
            yield x + batch[0][: len(x)], y


class Endless:
    """Gives batches for ever and knows no length."""

    def __init__(self):
        self.rng = random.Random(3)

    def __iter__(self):
        while True:
            yield default_collate([point(self.rng.randrange(LENGTH)) for _ in range(4)])


class RepeatsBatches:
    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def __iter__(self):
        while True:
            yield from self.inner


class KeepsIterator(DataLoader):
    """YOLO's InfiniteDataLoader and timm's MultiEpochsDataLoader: one iterator for the whole training."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        object.__setattr__(self, 'batch_sampler', RepeatsBatches(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.inner)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)


class Resampled(DataLoader):
    """A subclass with an ``__iter__`` that does something first."""

    def __iter__(self):
        self.dataset.draw = Drawn('python', random.randrange(100))
        return super().__iter__()


def batches(n=5):
    """Ready batches, one after the other."""
    return (default_collate([point(4 * k + i) for i in range(4)]) for k in range(n))


def set_numpy_seed(worker):
    np.random.seed(torch.initial_seed() % 2**32)
    random.seed(torch.initial_seed())


def mixed(batch, draw):
    """Mixup: a part of each sample comes from the next one."""
    x, y = default_collate(batch)
    share = draw()
    return x * share + x.roll(1, 0) * (1 - share), y


class Mixup:
    """Mixup as an object with a generator."""

    def __init__(self, library):
        self.rng = Drawn(library).generator

    def __call__(self, batch):
        return mixed(batch, self._draw)

    def _draw(self):
        return (
            float(self.rng.random())
            if not isinstance(self.rng, torch.Generator)
            else float(torch.rand((), generator=self.rng))
        )

    collate = __call__


def mixup_closure():
    rng = np.random.default_rng(3)

    def collate(batch):
        return mixed(batch, rng.random)

    return collate


# --- hooks and runners -----------------------------------------------------------------------------------------------


class Harder(Hook):
    """Tells a data set how hard to be."""

    def __init__(self, dataset):
        self.dataset = dataset

    def after_train_iter(self, runner):
        self.dataset.difficulty = (runner.iter + 1) / 10


class SetsLength(Hook):
    """Tells a data set which epoch it is."""

    def __init__(self, dataset):
        self.dataset = dataset

    def before_train_epoch(self, runner):
        self.dataset.epoch = runner.epoch


class Shuffles(Hook):
    """Shuffles a data set's own list in place."""

    def __init__(self, dataset):
        self.dataset = dataset

    def before_train_epoch(self, runner):
        random.shuffle(self.dataset.items)


class Weighs(Hook):
    """Gives a sampler new weights from the last loss."""

    def __init__(self, sampler):
        self.sampler = sampler

    def after_train_iter(self, runner):
        self.sampler.weights[runner.iter % LENGTH] += float(runner.outputs['loss'])


class SetsEpoch(Hook):
    """Lightning's and plain loops' way: the sampler is told by a hook."""

    def __init__(self, sampler):
        self.sampler = sampler

    def before_train_epoch(self, runner):
        self.sampler.set_epoch(runner.epoch)


class OwnTrain(EpochBasedRunner):
    """A runner of MMCV's time with a loop of its own."""

    def train(self, data_loader, **kwargs):
        self.model.train()
        self.mode, self.data_loader = 'train', data_loader
        self._max_iters = self._max_epochs * len(data_loader)
        self.call_hook('before_train_epoch')
        for i, data_batch in enumerate(data_loader):
            self._inner_iter = i
            self.call_hook('before_train_iter')
            self.run_iter(data_batch, train_mode=True, **kwargs)
            self.call_hook('after_train_iter')
            self._iter += 1
        self.call_hook('after_train_epoch')
        self._epoch += 1


class OwnTrainByIter(IterBasedRunner):
    """The same for the iteration runner."""

    def train(self, data_loader, **kwargs):
        self.model.train()
        self.mode, self.data_loader = 'train', data_loader
        self._epoch = data_loader.epoch
        data_batch = next(data_loader)
        self.call_hook('before_train_iter')
        self.outputs = self.model.train_step(data_batch, self.optimizer, **kwargs)
        self.log_buffer.update(self.outputs['log_vars'], self.outputs['num_samples'])
        self.call_hook('after_train_iter')
        self._inner_iter += 1
        self._iter += 1


class OwnRun(OwnTrainByIter):
    """mmgen's DynamicIterBasedRunner: ``run`` and ``call_hook`` of its own, too."""

    def call_hook(self, fn_name):
        for hook in self._hooks:
            getattr(hook, fn_name, lambda runner: None)(self)

    def run(self, data_loaders, workflow, max_iters=None, **kwargs):
        loaders = [IterLoader(loader) for loader in data_loaders]
        self.call_hook('before_run')
        self.call_hook('before_epoch')
        while self.iter < self._max_iters:
            for loader, (mode, n) in zip(loaders, workflow, strict=True):
                self._inner_iter = 0
                for _ in range(n):
                    if mode == 'train' and self.iter >= self._max_iters:
                        break
                    getattr(self, mode)(loader, **kwargs)
        self.call_hook('after_epoch')
        self.call_hook('after_run')


class OwnRunIter(EpochBasedRunner):
    """A runner with a step of its own."""

    def run_iter(self, data_batch, train_mode, **kwargs):
        if train_mode:
            data_batch = [data_batch[0] + random.random(), data_batch[1]]
        super().run_iter(data_batch, train_mode, **kwargs)


# --- the table -------------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """What a kind builds: a loader for each entry of the workflow, and hooks."""

    loaders: list[Any]
    by_epoch: list[tuple[str, int]] = [('train', 1)]
    by_iter: list[tuple[str, int]] | None = None
    hooks: list[Hook] = []

    def workflow(self, runner):
        """The one for the runner of this name."""
        return self.by_iter if runner == 'iter' and self.by_iter else self.by_epoch


BOTH = {'epoch': EpochBasedRunner, 'iter': IterBasedRunner}
EPOCH, ITER = {'epoch': EpochBasedRunner}, {'iter': IterBasedRunner}


@dataclass(frozen=True)
class Kind:
    """A row of the table.

    Attributes:
        build: makes its parts anew; the process's generators are seeded alike before.
        quiet: whether all of its state is where a runner can see it, so that nothing is to be told.
        runners: which of them run it, by name.
        limit: of the run; by default three epochs, or as many iterations.
    """

    build: Callable[[], Plan]
    quiet: bool = False
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
    """A training and a validation."""
    return Plan([train, other], [('train', 1), ('val', 1)], [('train', 3), ('val', 2)])


def shuffled(dataset=None, workers=0, **options):
    return torchs_own(dataset, workers, shuffle=True, **options)


def evaluated(loader):
    """A training with an EvalHook; its epochs have five iterations."""
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
    'build_dataloader, sampler that counts': Kind(lambda: one(ours(sampler=CountsEpochs()))),
    'build_dataloader, RepeatDataset': Kind(lambda: one(ours(RepeatDataset(Noisy(length=10), 2))), quiet=True),
    'build_dataloader, ConcatDataset': Kind(
        lambda: one(ours(ConcatDataset([Noisy(length=8), Noisy(pythons, 12)]))), quiet=True
    ),
    'build_dataloader, data set with a generator': Kind(lambda: one(ours(OwnGenerator('numpy'))), quiet=True),
    'build_dataloader, data set with a generator, 2 workers': Kind(lambda: one(ours(OwnGenerator('torch'), 2))),
    'build_dataloader, mixup object': Kind(lambda: one(ours(collate_fn=Mixup('numpy'))), quiet=True),
    'build_dataloader, data set that counts': Kind(lambda: one(ours(Counting()))),
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
    'sampler with set_epoch': Kind(with_sampler_hook, quiet=True, runners=EPOCH),
    'sampler with set_epoch, 2 workers': Kind(lambda: one(torchs_own(workers=2, sampler=OfEpoch())), quiet=True),
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
    'sampler with random.Random': Kind(lambda: one(torchs_own(sampler=Own('python'))), quiet=True),
    'sampler with np.random.Generator': Kind(lambda: one(torchs_own(sampler=Own('numpy'))), quiet=True),
    'sampler with RandomState': Kind(lambda: one(torchs_own(sampler=Own('RandomState'))), quiet=True),
    'sampler with torch.Generator': Kind(lambda: one(torchs_own(sampler=Own('torch'))), quiet=True),
    'sampler in a sampler': Kind(lambda: one(torchs_own(sampler=Wraps(Own('numpy'))))),
    'batch sampler with np.random.Generator': Kind(
        lambda: one(DataLoader(points(), batch_sampler=OwnBatchSampler())), quiet=True
    ),
    'batch sampler with batches of any size': Kind(lambda: one(DataLoader(points(), batch_sampler=Buckets()))),
    'list of indices as a sampler': Kind(lambda: one(torchs_own(sampler=[*range(LENGTH)][::-1])), quiet=True),
    'GroupSampler': Kind(lambda: one(torchs_own(sampler=Grouped())), quiet=True),
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
    'data set with a transform with a generator': Kind(lambda: one(shuffled(Noisy(Drawn('python'))))),
    'Subset of a data set with a generator': Kind(
        lambda: one(shuffled(Subset(OwnGenerator('python'), range(2, LENGTH))))
    ),
    'ConcatDataset of data sets with generators': Kind(
        lambda: one(shuffled(ConcatDataset([OwnGenerator('python'), OwnGenerator('numpy')]))), limit=MOST
    ),
    'data set that counts': Kind(lambda: one(shuffled(Counting()))),
    'data set that counts, 2 workers': Kind(lambda: one(shuffled(Counting(), 2))),
    'data set with a changing cache': Kind(lambda: one(shuffled(Mosaic()))),
    'data set with a memory': Kind(lambda: one(shuffled(Memoized()))),
    'data set with state_dict': Kind(lambda: one(shuffled(WithState()))),
    'data set with a generator of its class': Kind(lambda: one(shuffled(ClassGenerator()))),
    'data set with a generator of its module': Kind(lambda: one(shuffled(Noisy(lambda: OF_THE_MODULE.random())))),
    'data set with __getitems__': Kind(lambda: one(shuffled(ManyAtOnce())), quiet=True),
    'build_dataloader, data set with a generator of its module': Kind(
        lambda: one(ours(Noisy(lambda: OF_THE_MODULE.random())))
    ),
    'data set with a lazily opened file': Kind(lambda: one(shuffled(LazyFile())), quiet=True),
    'data set that reads on in a file': Kind(lambda: one(shuffled(OneAfterTheOther()))),
    'data set that a hook makes harder': Kind(lambda: with_dataset_hook(Curriculum, Harder, shuffle=True)),
    'data set of changing length': Kind(lambda: with_dataset_hook(Shrinking, SetsLength, shuffle=True), runners=EPOCH),
    'data set that a hook shuffles': Kind(lambda: with_dataset_hook(Reordered, Shuffles), runners=EPOCH),
    # collate functions
    'collate function, closure': Kind(lambda: one(shuffled(collate_fn=mixup_closure())), quiet=True),
    'collate function, partial': Kind(
        lambda: one(shuffled(collate_fn=functools.partial(mixed, draw=random.Random(3).random))), quiet=True
    ),
    'collate function, object': Kind(lambda: one(shuffled(collate_fn=Mixup('python'))), quiet=True),
    'collate function, object with torch.Generator': Kind(lambda: one(shuffled(collate_fn=Mixup('torch'))), quiet=True),
    'collate function, method': Kind(lambda: one(shuffled(collate_fn=Mixup('numpy').collate))),
    'collate function, object, 2 workers': Kind(lambda: one(shuffled(workers=2, collate_fn=Mixup('numpy')))),
    # shared parts, several loaders
    'one generator, two loaders': Kind(shared_by_two, quiet=True),
    'one generator, sampler and data set': Kind(shared_with_dataset, quiet=True),
    'two trainings with generators': Kind(
        lambda: two_trainings(lambda seed: shuffled(generator=seeded(seed))), quiet=True
    ),
    'two trainings': Kind(lambda: two_trainings(lambda seed: shuffled()), quiet=True),
    'two trainings, samplers with generators': Kind(
        lambda: two_trainings(lambda seed: torchs_own(sampler=Own('python'))), quiet=True
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
    'stream that goes on': Kind(lambda: one(torchs_own(GoesOn()))),
    'stream with state_dict': Kind(lambda: one(torchs_own(StreamWithState()))),
    'stream that groups': Kind(lambda: one(DataLoader(Grouping(), batch_size=None)), limit={'max_iters': 11}),
    'stream of batches': Kind(lambda: one(DataLoader(OwnBatches(), batch_size=None))),
    # loaders of one's own
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
    'loader beside one in a cycle': Kind(lambda: one(WithUnlabelled(shuffled(), shuffled(points(SHORT))))),
    'endless loader': Kind(lambda: one(Endless()), limit=MOST),
    # runs
    'EvalHook, shuffled': Kind(lambda: evaluated(shuffled(Noisy(length=SHORT))), quiet=True),
    'EvalHook, generator': Kind(lambda: evaluated(shuffled(points(SHORT), generator=seeded())), quiet=True),
    'EvalHook, persistent workers': Kind(lambda: evaluated(shuffled(Noisy(length=SHORT), 2, persistent_workers=True))),
    'EvalHook, sampler that counts': Kind(lambda: evaluated(torchs_own(sampler=CountsEpochs()))),
    'max_iters': Kind(lambda: one(shuffled()), quiet=True, limit=MOST),
    'max_epochs': Kind(lambda: one(shuffled()), quiet=True, limit={'max_epochs': 3}),
    'accumulation': Kind(lambda: one(shuffled(), OptimizerHook(cumulative_iters=3)), quiet=True),
    'runner with a train of its own': Kind(
        lambda: one(shuffled()), runners={'epoch': OwnTrain, 'iter': OwnTrainByIter}
    ),
    'runner with a train of its own, build_dataloader': Kind(
        lambda: one(ours()), runners={'epoch': OwnTrain, 'iter': OwnTrainByIter}
    ),
    'runner with run and call_hook of its own': Kind(lambda: one(shuffled()), runners={'iter': OwnRun}),
    'runner with run and call_hook of its own, val': Kind(
        lambda: val(shuffled(), shuffled(points(SHORT))), runners={'iter': OwnRun}
    ),
    'runner with a step of its own': Kind(lambda: one(shuffled()), quiet=True, runners={'epoch': OwnRunIter}),
}
