"""Data sets and loaders, built by name."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)

from runnerkit.data.loader import LOADER_OPTIONS, SeededLoader
from runnerkit.data.sampler import EpochSampler, FirstBatches
from runnerkit.data.seeding import mix_seed
from runnerkit.distributed.groups import get_dist_info
from runnerkit.registry import Registry, build_or_bind, find_function
from runnerkit.utils.exceptions import raise_with_context
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.signatures import LOADER_FUNCTIONS
from runnerkit.utils.suggest import did_you_mean, nearest

DATASETS = Registry('dataset')
DATASETS.offer({'Stream': 'runnerkit.data.stream'})
TRANSFORMS = Registry('transform')
TRANSFORMS.offer({'Compose': 'runnerkit.data.compose'})
SAMPLERS = Registry('sampler')

DATASETS.register_module(module=ConcatDataset)
for _sampler in (
    EpochSampler,
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
):
    SAMPLERS.register_module(module=_sampler)

#: Data sets made of others, and the argument that holds the others' configs.
_NESTED = {'ConcatDataset': 'datasets', 'RepeatDataset': 'dataset'}

#: The arguments of data sets that hold transforms, of which the configs are built where the class does not do it.
TRANSFORM_KEYS = ('transform', 'transforms', 'target_transform')

#: Longer lists are no transforms but samples.
_MOST_TRANSFORMS = 100

#: Options that mean something only where there are workers.
_WORKER_OPTIONS = ('persistent_workers', 'prefetch_factor', 'multiprocessing_context', 'timeout')


def build_dataset(cfg: Any, default_args: dict[str, Any] | None = None) -> Any:
    """Build a data set from its config.

    Args:
        cfg: a config; a list or tuple of configs, whose data sets are concatenated; or a data set, which is returned.
            A ``RepeatDataset`` has a config as its ``dataset``, a ``ConcatDataset`` a list of them as its ``datasets``.
            Configs in ``transform``, ``transforms`` and ``target_transform`` that the class has not built are built.
        default_args: arguments for what ``cfg`` does not say, of every data set that it describes.

    Raises:
        TypeError: ``cfg`` is nothing of these.
        ValueError: ``cfg`` is an empty list.
    """
    if isinstance(cfg, list | tuple):
        if not cfg:
            raise ValueError('a list of data sets needs at least one config, but got an empty one')
        return ConcatDataset([build_dataset(part, default_args) for part in cfg])
    if not isinstance(cfg, dict):
        if isinstance(cfg, str) or not (hasattr(cfg, '__getitem__') or hasattr(cfg, '__iter__')):
            raise TypeError(
                f'a data set must be a config (a dict with a type), a list of configs or built, but got {cfg!r}'
            )
        return cfg
    held = _NESTED.get(cfg.get('type'))  # type: ignore[arg-type]
    if held is None or held not in cfg:
        return with_transforms(DATASETS.build(cfg, default_args=default_args), cfg)
    inner = cfg[held]
    if held == 'datasets':
        built: Any = [build_dataset(part, default_args) for part in inner]
    else:
        built = build_dataset(inner, default_args)
    # By way of default_args, which are handed on as they are.
    outer = copy.copy(cfg)
    del outer[held]
    return DATASETS.build(outer, default_args={held: built})


def with_transforms(dataset: Any, cfg: dict[str, Any]) -> Any:
    """``dataset``, in which transforms that ``cfg`` describes are built, as far as its class has not done so."""
    given = [cfg[key] for key in TRANSFORM_KEYS if isinstance(cfg.get(key), dict | list | tuple)]
    if given:
        build_what_is_left(dataset, given)
    return dataset


def build_what_is_left(dataset: Any, given: Sequence[Any]) -> None:
    """Build the transforms that ``dataset`` still holds as configs: those of ``given``, and those inside of them.

    A class that builds them itself leaves none. They are looked for in the attributes of the data set, of its
    transforms and of the data set that it is a part of. A name that is no transform's is left to the class.
    """
    _build_in(dataset, [config['type'] for config in _configs_in(given)], {}, set())


def _configs_in(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield from [value] if 'type' in value else []
        value = list(value.values())
    for each in value if isinstance(value, list | tuple) else ():
        yield from _configs_in(each)


def _build_in(holder: Any, types: Sequence[Any], built: dict[int, tuple[Any, Any]], seen: set[int]) -> None:
    """Replace the configs in the attributes of ``holder``; what two of them share, they share afterwards."""
    if id(holder) in seen or isinstance(holder, type) or inspect.isroutine(holder):
        return
    seen.add(id(holder))
    attributes = dict(getattr(holder, '__dict__', {}))
    usual = [name for name in attributes if name.strip('_') in TRANSFORM_KEYS]
    for name, value in attributes.items():
        parts = value if isinstance(value, list | tuple) else [value]
        if len(parts) > _MOST_TRANSFORMS:
            continue
        # Next to the usual names, another one is that of a copy which the class keeps.
        new = [_built(part, types, built) for part in parts] if not usual or name in usual else parts
        if any(one is not other for one, other in zip(new, parts, strict=True)):
            setattr(holder, name, type(value)(new) if isinstance(value, list | tuple) else new[0])
        for part in new:
            if callable(part) or name == 'dataset':
                _build_in(part, types, built, seen)


def _built(value: Any, types: Sequence[Any], built: dict[int, tuple[Any, Any]]) -> Any:
    named = value.get('type') if isinstance(value, dict) else None
    if named is None or named not in types:
        return value
    is_known = not isinstance(named, str) or '.' in named or TRANSFORMS.get(named) is not None
    if not is_known and not nearest(named, TRANSFORMS.names()):
        return value
    if id(value) not in built:  # with the config, so that no other one gets its id
        built[id(value)] = value, build_or_bind(value, TRANSFORMS)
    return built[id(value)][1]


def check_dataset(dataset: Any) -> None:
    """Whether a loader can draw samples from ``dataset``."""
    if isinstance(dataset, IterableDataset):
        return
    name = type(dataset).__name__
    for method in ('__len__', '__getitem__'):
        if not hasattr(dataset, method):
            raise TypeError(
                f'the data set {name} has no {method}: write it (a data set has both, __len__ and __getitem__), or '
                'derive the class from torch.utils.data.IterableDataset'
            )
    try:
        length = len(dataset)
    except TypeError as error:
        raise_with_context(error, f'the length of the data set {name}: ')
    if length == 0:
        raise ValueError(
            f'the data set {name} is empty: a loader needs at least one sample. Check the paths and filters in its '
            'config'
        )


def build_dataloader(
    dataset: Any,
    samples_per_gpu: int | None = None,
    workers_per_gpu: int | None = None,
    num_gpus: int = 1,
    dist: bool | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    drop_last: bool = False,
    persistent_workers: bool = False,
    *,
    batch_size: int | None = None,
    workers: int | None = None,
    num_workers: int | None = None,
    round_up: bool = True,
    seeded: bool = True,
    sampler: Any = None,
    batch_sampler: Any = None,
    ranks: tuple[int, int] | None = None,
    prefetch_to: torch.device | str | None = None,
    max_batches: int | None = None,
    **kwargs: Any,
) -> DataLoader[Any]:
    """Build a loader whose batches are a function of (seed, epoch, position), see `SeededLoader`.

    Options for workers (``persistent_workers``, ``prefetch_factor``, ``multiprocessing_context``, ``timeout``) are left
    out where there are none, so that a config can be tried with ``workers=0``.

    Args:
        dataset: built already; map-style with a length, or iterable. A `Stream` makes its own loader; its order is
            that of its events, whatever ``shuffle`` is.
        samples_per_gpu: MMCV's name for ``batch_size``; one of them must be given.
        workers_per_gpu: MMCV's name for ``workers``; one of its names must be given.
        num_gpus: devices that this process feeds; it multiplies both where the run is not distributed.
        dist: whether ranks share the data; by default, whether there is more than one.
        shuffle: a new order in every epoch; has no effect on your ``sampler``, unless that is a config.
        seed: the run's, the same on every rank. None draws one from torch's generator; several ranks must have seeded
            that alike.
        drop_last: leave out what does not fill a last batch on every rank.
        persistent_workers: keep the workers from epoch to epoch.
        batch_size: samples in a batch on each device, at least 1.
        workers: worker processes for each device; 0 loads in the main process.
        num_workers: torch's name for ``workers``.
        round_up: give all ranks equally many samples by repeating some, as training needs. Say False for an evaluation
            that is to count each sample once.
        seeded: False for torch's own loader: faster by about 5 microseconds a sample in batches of 64 and 15 in batches
            of 8 (by 15 and 27 where samples draw from Python's or numpy's generator; no faster for a TensorDataset, and
            slower for its batches of 8 or more without workers), but what random transforms do then depends on the
            number of workers and cannot be entered in mid-epoch. The order stays a function of (seed, epoch).
        sampler: in place of the usual one: a sampler, or a config for SAMPLERS. One that gives all ranks the same is
            shared out: each sample of its order goes to one rank.
        batch_sampler: in place of ``sampler``, ``batch_size`` and ``drop_last``: a batch sampler, or a config.
            One that gives all ranks the same is shared out, a batch to each rank.
        ranks: a rank and how many there are, to load what another process of a distributed run loads.
        prefetch_to: a GPU to which batches are copied ahead, see `SeededLoader`; not without ``seeded``.
        max_batches: how many batches an epoch has at most on each rank, at least 1; None for all. A shuffled epoch
            sees other samples each time; one in the data set's order always the first. With a limit, a stream
            has a length, and needs ``seeded``.
        kwargs: other arguments of torch's DataLoader. ``collate_fn`` and ``worker_init_fn`` may be names, see
            `runnerkit.registry.find_function`.

    Raises:
        TypeError: an unknown argument, or one that is missing.
        ValueError: an empty data set, numbers out of range, or arguments that exclude each other.
    """
    samples = _one_of(1, batch_size=batch_size, samples_per_gpu=samples_per_gpu)
    processes = _one_of(0, workers=workers, num_workers=num_workers, workers_per_gpu=workers_per_gpu)
    _check_arguments(num_gpus, kwargs)
    kwargs.update({name: find_function(kwargs[name], name) for name in LOADER_FUNCTIONS if name in kwargs})
    if prefetch_to is not None and not seeded:
        raise ValueError(
            'prefetch_to draws batches early, which would change what a loader with seeded=False gives: leave out one '
            'of the two'
        )
    streaming = isinstance(dataset, IterableDataset)
    check_whole_number('max_batches', max_batches, or_none=True, hint='None for all batches')
    if max_batches is not None and streaming and not seeded:
        raise ValueError(
            'max_batches of a stream needs the loader that seeds it: leave out one of max_batches and seeded=False'
        )
    check_dataset(dataset)
    rank, world_size = ranks or (get_dist_info() if dist is not False else (0, 1))
    scale = 1 if dist or (dist is None and world_size > 1) else num_gpus
    batch_size, num_workers = samples * scale, processes * scale
    if seed is None:
        seed = int(torch.randint(2**31, ()))
    if hasattr(dataset, 'make_loader'):
        refused = {'workers': num_workers, 'prefetch_to': prefetch_to, 'max_batches': max_batches, **kwargs}
        _check_own_loader(dataset, refused)
        shares = {'seed': seed, 'rank': rank, 'world_size': world_size, 'drop_last': drop_last}
        return dataset.make_loader(batch_size, **shares, **kwargs)
    options = dict(kwargs, num_workers=num_workers, persistent_workers=persistent_workers)
    if num_workers == 0:
        options = {key: value for key, value in options.items() if key not in _WORKER_OPTIONS}
    if not streaming:
        context = {
            'shuffle': shuffle,
            'seed': seed,
            'rank': rank,
            'world_size': world_size,
            'round_up': round_up,
            'drop_last': drop_last,
        }
        sampler, batch_sampler = _samplers(dataset, sampler, batch_sampler, batch_size, context)
        if max_batches is not None:
            sampler, batch_sampler = _limited(sampler, batch_sampler, batch_size, max_batches, context)
    if batch_sampler is None:
        options.update(batch_size=batch_size, drop_last=drop_last)
    options.update(sampler=sampler, batch_sampler=batch_sampler)
    if seeded:
        own: dict[str, Any] = {'seed': seed, 'rank': rank, 'world_size': world_size}
        loader: DataLoader[Any] = SeededLoader(
            dataset, **own, prefetch_to=prefetch_to, max_batches=max_batches, **options
        )
    else:
        options.setdefault('generator', torch.Generator().manual_seed(mix_seed(seed, rank)))
        if num_workers > 0:
            from runnerkit.data.worker_signals import OutlivingSignals

            options['worker_init_fn'] = OutlivingSignals(options.get('worker_init_fn'))
        loader = DataLoader(dataset, **options)
        loader.max_batches = max_batches
    if drop_last and not streaming and len(loader) == 0:
        raise ValueError(
            f'drop_last=True leaves no batch: {len(dataset)} samples do not fill one batch of {batch_size} on '
            f'each of {world_size} rank(s). Reduce batch_size, or set drop_last=False'
        )
    return loader


def _check_own_loader(dataset: Any, options: dict[str, Any]) -> None:
    """Refuse what a data set that makes its own loader cannot do."""
    for name, value in options.items():
        if value and name != 'collate_fn':
            raise ValueError(
                f'the data set {type(dataset).__name__} makes its own loader, which reads ahead in a thread and takes '
                f'no {name}={value!r}: leave it out (workers=0)'
            )


def _one_of(at_least: int, **values: Any) -> int:
    """The number that was given by one of several names."""
    given = {name: value for name, value in values.items() if value is not None}
    if len(given) > 1:
        texts = ' and '.join(f'{name}={value!r}' for name, value in given.items())
        raise ValueError(f'{texts} are names of the same option of build_dataloader: give one of them')
    if not given:
        usual, *others = values
        raise TypeError(f'build_dataloader needs {usual}, or {" or ".join(others)}, which means the same')
    (pair,) = given.items()
    check_whole_number(*pair, at_least=at_least)
    return pair[1]


def _check_arguments(num_gpus: int, kwargs: dict[str, Any]) -> None:
    check_whole_number('num_gpus', num_gpus)
    known = [*inspect.signature(build_dataloader).parameters, *LOADER_OPTIONS]
    for name in kwargs:
        if name not in LOADER_OPTIONS:
            hint = did_you_mean(name, known)
            raise TypeError(
                f'build_dataloader: unexpected argument {name!r}{"; " + hint if hint else "."} It passes to the '
                f'DataLoader: {", ".join(LOADER_OPTIONS)}.'
            )


def _samplers(
    dataset: Dataset[Any], sampler: Any, batch_sampler: Any, batch_size: int, context: dict[str, Any]
) -> tuple[Iterable[Any] | None, Iterable[Sequence[Any]] | None]:
    """The sampler and the batch sampler for a map-style data set, built where they are configs, and shared out."""
    if sampler is None and batch_sampler is None:
        return EpochSampler(dataset, **context), None  # type: ignore[arg-type]
    from runnerkit.data.shares import shared_out

    offered = dict(context, dataset=dataset, data_source=dataset, num_replicas=context['world_size'])
    is_built = isinstance(sampler, dict)
    if is_built:
        sampler = _build_sampler(sampler, offered)
    if isinstance(batch_sampler, dict):
        offered.update(batch_size=batch_size)
        offered.update(sampler=EpochSampler(dataset, **context) if sampler is None else sampler)  # type: ignore[arg-type]
        sampler, batch_sampler = None, _build_sampler(batch_sampler, offered)
    samples = len(dataset)  # type: ignore[arg-type]
    if batch_sampler is not None:
        return sampler, shared_out(batch_sampler, samples, context)
    return shared_out(sampler, samples, context, is_built), None


def _limited(
    sampler: Any, batch_sampler: Any, batch_size: int, max_batches: int, context: dict[str, Any]
) -> tuple[Iterable[Any] | None, Iterable[Sequence[Any]] | None]:
    """The sampler and the batch sampler, with ``max_batches`` an epoch."""
    if batch_sampler is None and isinstance(sampler, EpochSampler):
        # A position in the order, so that a pass can be left and entered by another number of ranks as well.
        sampler.limit = max_batches * batch_size * sampler.world_size
        return sampler, None
    if batch_sampler is None:
        batch_sampler = BatchSampler(sampler, batch_size, context['drop_last'])
    return None, FirstBatches(batch_sampler, max_batches)


def _build_sampler(cfg: dict[str, Any], offered: dict[str, Any]) -> Any:
    """Build a sampler that gets, of what is ``offered``, the arguments that it knows by these names."""
    named = cfg.get('type')
    constructor = SAMPLERS.get(named) if isinstance(named, str) else named
    known = inspect.signature(constructor).parameters if callable(constructor) else ()
    return SAMPLERS.build(cfg, default_args={name: value for name, value in offered.items() if name in known})


@DATASETS.register_module()
class RepeatDataset(Dataset[Any]):
    """A data set several times over, as one long epoch.

    An epoch of a small data set is over before its workers are warm; repeated, they restart less often. With seeded
    samples every repetition of a sample has its own augmentation.

    Args:
        dataset: map-style, with a length.
        times: at least 1.

    Raises:
        TypeError: ``times`` is no whole number.
        ValueError: ``times`` is less than 1.
    """

    def __init__(self, dataset: Dataset[Any], times: int) -> None:
        check_whole_number('times', times)
        self.dataset = dataset
        self.times = times

    def __len__(self) -> int:
        return self.times * len(self.dataset)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        length = len(self.dataset)  # type: ignore[arg-type]
        if not 0 <= index < self.times * length:
            raise IndexError(f'index {index} is out of range for {length} samples {self.times} times')
        return self.dataset[index % length]
