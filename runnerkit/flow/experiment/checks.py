"""Checks of an experiment's config and loaders."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler

from runnerkit.config import Config
from runnerkit.data.kinds import order_of
from runnerkit.utils.exceptions import WrongType
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.suggest import near_miss

#: The section ``training`` of an experiment's config, by default.
TRAINING = {'max_iteration': 900000, 'valid_interval': 1000, 'save_interval': 10000}
TRAINING_KEYS = (*TRAINING, 'log_interval')

#: What else of its config an experiment reads.
KNOWN_KEYS = [
    *('training', 'seed', 'deterministic', 'work_dir', 'log_level', 'log_config', 'checkpoint_config', 'evaluation'),
    *('lr_config', 'momentum_config', 'optimizer_config', 'amp', 'fp16', 'custom_hooks'),
    *('model_wrapper', 'find_unused_parameters', 'broadcast_buffers', 'sync_batchnorm'),
]


def experiment_config(config: Any) -> Config:
    """A copy of ``config`` with the defaults of its section ``training``.

    Raises:
        TypeError: it is no config, or its ``training`` no dict.
        ValueError: a number there is none.
    """
    if config is not None and not isinstance(config, (Config, Mapping)):
        raise WrongType(f'config must be a Config, a dict or None, but got {type(config)}: Experiment(config, args)')
    found = copy.deepcopy(config) if isinstance(config, Config) else Config(copy.deepcopy(dict(config or {})))
    training = found.get('training')
    if training is not None and not isinstance(training, Mapping):
        raise WrongType(f'training must be a dict such as dict(max_iteration=1000), but got {training!r}')
    found.training = {**TRAINING, **(training or {})}
    for name in TRAINING_KEYS:
        if name in found.training:
            check_whole_number(f'training.{name}', found.training[name], at_least=int(name != 'max_iteration'))
    check_whole_number('seed', found.get('seed'), at_least=0, or_none=True)
    return found


def misspelt(config: Any) -> Iterator[tuple[str, str]]:
    """Keys of ``config`` that a run does not read, but that look like ones that it reads, with those."""
    for before, names, known in (('', config, KNOWN_KEYS), ('training.', config.training, TRAINING_KEYS)):
        for name in names:
            if meant := near_miss(str(name), known):
                yield f'{before}{name}', f'{before}{meant}'


def problem_of_loader(loader: Any) -> str | None:
    """Why a run cannot read batches from ``loader`` again and again; None if it can."""
    if isinstance(loader, (list, tuple)) and loader and all(isinstance(each, DataLoader) for each in loader):
        several = "dict(clean=…, noisy=…), and read with self.read_batch('noisy')"
        return f'got a list of loaders: give several in a dict, {several}'
    if isinstance(loader, Dataset) and not isinstance(loader, IterableDataset):
        return (
            f'got the data set {type(loader).__name__}: give a loader over it, such as '
            'runnerkit.data.build_dataloader(dataset, samples_per_gpu=32, workers_per_gpu=2)'
        )
    if hasattr(loader, '__next__'):
        return f'got {type(loader).__name__}, an iterator, which ends after one pass: give what iter() was called with'
    if not hasattr(loader, '__iter__') and not hasattr(loader, '__getitem__'):
        return f'got {loader!r}'
    return None


def is_shared_by_all(loader: Any) -> bool:
    """Whether each of several ranks would read all samples of ``loader``, since nothing gives it a part of them."""
    if (
        not isinstance(loader, DataLoader)
        or isinstance(loader.dataset, IterableDataset)
        or order_of(loader) is not None
    ):
        return False
    is_torchs = type(loader.batch_sampler) in (type(None), BatchSampler)
    return is_torchs and type(loader.sampler) in (RandomSampler, SequentialSampler)
