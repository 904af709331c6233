"""The loaders of a run, as the config's ``data`` says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from torch.utils.data import Subset

from runnerkit.config.known_keys import KEYS, SAME
from runnerkit.config.objects import refuse_marks
from runnerkit.config.origin import at
from runnerkit.data import build_dataloader, build_dataset
from runnerkit.data.builder import check_dataset
from runnerkit.data.named import name_scores, named_datasets
from runnerkit.flow.context import Context
from runnerkit.flow.stages.defaults import mode_of, required_section, split_of, splits_in
from runnerkit.registry import placed_errors
from runnerkit.runner.workflow import check_entries
from runnerkit.utils.exceptions import WrongType
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.suggest import suggestion


def load_data(context: Context) -> None:
    """Build a loader for every workflow entry, and for the evaluation.

    An entry that validates on several data sets by name becomes one entry for each of them.
    """
    workflow = context.cfg.get('workflow', [('train', 1)])
    with placed_errors(context.cfg, 'workflow'):
        check_entries(workflow)
    data = required_section(context.cfg, 'data')
    splits = [split_of(mode, data) for mode, _ in workflow]
    if context.options.overfit is None:
        datasets = {split: build_datasets(data, split) for split in dict.fromkeys(splits)}
    else:
        few = first_samples(build_single_dataset(data, 'train'), context.options.overfit)
        dropped = (
            f'; {type(few.dataset).__name__}.evaluate is not called: the model computes the scores'
            if hasattr(few.dataset, 'evaluate')
            else ''
        )
        context.logger.info(
            '--overfit: training and evaluation use the first %d samples of data.train%s', len(few), dropped
        )
        names = {split: named_datasets(data.get(split)) for split in ('val', *splits)}
        datasets = {'train': {'': few}, **{split: dict.fromkeys(of, few) for split, of in names.items()}}
    context.workflow, context.loaders = [], []
    # One loader per entry, even for the same data: two iterators over one loader would share its workers.
    for (name, n), split in zip(workflow, splits, strict=True):
        mode = mode_of(name, data)
        with placed_errors(data):
            prefix = '' if split == 'val' else split
            loaders = build_loaders(context, data, split, datasets[split], mode != 'val', prefix)
        if mode != 'val' and '' not in loaders:
            raise TypeError(
                f'data.{split} has several data sets by name ({", ".join(loaders)}), but the workflow entry '
                f'{(name, n)!r} trains on one: give a list to concatenate them, or one split each'
            )
        context.workflow += [(mode, n)] * len(loaders)
        context.loaders += loaders.values()
    if context.options.validate and context.cfg.get('evaluation') is not None and data.get('val') is not None:
        loaders = build_loaders(context, data, 'val', datasets.get('val'))
        context.val_loader = loaders.get('', loaders)


def build_datasets(data: Mapping[str, Any], split: str) -> dict[str, Any]:
    """The data sets of ``data[split]`` by name; a single one is called ``''``."""
    with placed_errors(data, split, name=f'data.{split}'):
        check_split(data, split)
        refuse_marks(data[split], 'data', split)
        datasets = {name: build_dataset(config) for name, config in named_datasets(data[split]).items()}
        for dataset in datasets.values():
            check_dataset(dataset)
        return datasets


def build_single_dataset(data: Mapping[str, Any], split: str) -> Any:
    """The data set of ``data[split]``, where there is only one."""
    datasets = build_datasets(data, split)
    if '' not in datasets:
        raise TypeError(f'data.{split} has several data sets by name, {", ".join(datasets)}, but one is needed')
    return datasets['']


def build_loaders(
    context: Context,
    data: Mapping[str, Any],
    split: str,
    datasets: Mapping[str, Any] | None = None,
    trains: bool = False,
    prefix: str = '',
) -> dict[str, Any]:
    """The loaders of ``data[split]`` by the data sets' names; ``prefix`` and name stand before each's scores."""
    loaders = {}
    for name, dataset in (build_datasets(data, split) if datasets is None else datasets).items():
        loaders[name] = loader = build_loader(context, data, split, dataset, trains)
        if full := '/'.join(part for part in (prefix, name) if part):
            name_scores(loader, full)
    return loaders


def build_loader(
    context: Context, data: Mapping[str, Any], split: str, dataset: Any = None, trains: bool | None = None
) -> Any:
    """The loader of ``data[split]``, see `loader_settings`."""
    settings = loader_settings(data, split)
    dataset = build_single_dataset(data, split) if dataset is None else dataset
    trains = split == 'train' if trains is None else trains
    settings.setdefault('shuffle', trains)
    settings.setdefault('round_up', trains)  # an evaluation must count each sample once
    if context.cfg.get('prefetch') and context.device.type == 'cuda':
        if settings.get('seeded', True):
            settings = {'pin_memory': True, 'prefetch_to': context.device, **settings}
        else:
            context.logger.warning('prefetch=True has no effect on data.%s, which has seeded=False', split)
    with placed_errors(data):
        return build_dataloader(dataset, dist=context.world_size > 1, seed=context.seed, **settings)


def check_split(data: Mapping[str, Any], split: str) -> None:
    """Check that ``data`` has the split.

    Raises:
        KeyError: it has not.
    """
    if data.get(split) is not None:
        return
    held = splits_in(data)
    hint = suggestion(str(split), held)
    if split == 'test' and held and not hint:
        hint = f' (use --split {held[-1]})'
    elif not hint and (os.path.exists(split) or os.sep in str(split)):
        hint = f'. {str(split)!r} is a path: give weights as checkpoint={str(split)!r}'
    raise KeyError(f"the config's data has no {split!r} section; it has {', '.join(held) or 'none'}{hint}")


def first_samples(dataset: Any, number: int) -> Subset[Any]:
    """The first ``number`` samples of ``dataset``, or all if it has no more; each is made as it is there.

    Raises:
        TypeError: it has no length.
    """
    name = type(dataset).__name__
    if not hasattr(dataset, '__len__') or not hasattr(dataset, '__getitem__'):
        raise WrongType(f'--overfit takes the first samples of data.train, but {name} is a stream without a length')
    return Subset(dataset, range(min(number, len(dataset))))


def loader_settings(data: Mapping[str, Any], split: str) -> dict[str, Any]:
    """The arguments of `build_dataloader` for ``split``: those of ``data['<split>_dataloader']`` over the common ones.

    Both may have torch's names, ``batch_size`` and ``num_workers``; the result has MMCV's.

    Raises:
        ValueError: a number that is too small, or an option that is given by both of its names.
        TypeError: what should be a whole number is none.
    """
    own = f'{split}_dataloader'
    common = {key: data[key] for key in KEYS['data'] if key in data}
    refuse_marks(common, 'data')
    refuse_marks(data.get(own), 'data', own)
    settings = {'samples_per_gpu': 1, 'workers_per_gpu': 0}
    return {**settings, **_mmcv_names(data, common), **_mmcv_names(data, data.get(own) or {}, own)}


def _mmcv_names(data: Mapping[str, Any], options: Mapping[str, Any], *path: str) -> dict[str, Any]:
    """``options``, found at ``path`` of ``data``, with its two numbers under MMCV's names, and checked."""

    def placed(key: str) -> str:
        return '.'.join(('data', *path, key)) + at(data, *path, key)

    named = dict(options)
    for ours, theirs in SAME:
        if theirs in options and ours in options:
            raise ValueError(f'{placed(theirs)} and {placed(ours)} are two names of the same option: keep one of them')
        key = theirs if theirs in options else ours
        if key in options:
            check_whole_number(placed(key), options[key], at_least=1 if ours == 'samples_per_gpu' else 0)
            named[ours] = named.pop(key)
    return named
