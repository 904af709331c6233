"""The loaders of a run, as the config's ``data`` says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from torch.utils.data import Subset

from runnerkit.config.known_keys import KEYS, SAME
from runnerkit.config.origin import at
from runnerkit.config.pretty import refuse_marks
from runnerkit.data import build_dataloader, build_dataset
from runnerkit.data.builder import check_dataset
from runnerkit.data.given import check_loader, given_loader, is_loader
from runnerkit.data.named import name_of_scores, name_scores, named_datasets
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
        few = first_samples(build_datasets(data, 'train'), context.options.overfit)
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
        loaders = build_loaders(context, data, split, datasets[split], mode != 'val', '' if split == 'val' else split)
        if mode != 'val' and '' not in loaders:
            with placed_errors(data):
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
    """The data sets of ``data[split]`` by name, or loaders in their place; a single one is called ``''``."""
    with placed_errors(data, split, name=f'data.{split}'):
        check_split(data, split)
        refuse_marks(data[split], 'data', split)
        datasets = {name: build_dataset(config) for name, config in named_datasets(data[split]).items()}
        for dataset in datasets.values():
            (check_loader if is_loader(dataset) else check_dataset)(dataset)
        return datasets


def build_loaders(
    context: Context,
    data: Mapping[str, Any],
    split: str,
    datasets: Mapping[str, Any] | None = None,
    trains: bool = False,
    prefix: str = '',
) -> dict[str, Any]:
    """The loaders of ``data[split]`` by the data sets' names; ``prefix`` and name stand before each's scores."""
    # An evaluation must count each sample once.
    with placed_errors(data):
        settings = {'shuffle': trains, 'round_up': trains, **loader_settings(data, split)}
    if context.cfg.get('prefetch') and context.device.type == 'cuda':
        if settings.get('seeded', True):
            settings = {'pin_memory': True, 'prefetch_to': context.device, **settings}
        else:
            context.logger.warning('prefetch=True has no effect on data.%s, which has seeded=False', split)
    loaders = {}
    for name, dataset in (build_datasets(data, split) if datasets is None else datasets).items():
        with placed_errors(data):
            if is_loader(dataset):
                refuse_settings(data, split, dataset)
                loader = given_loader(dataset, context.seed, trains)
            else:
                loader = build_dataloader(dataset, dist=context.world_size > 1, seed=context.seed, **settings)
        loaders[name] = loader
        full = '/'.join(part for part in (prefix, name) if part)
        if full or name_of_scores(loader):  # one that was given may have a name from an earlier run
            name_scores(loader, full)
    return loaders


def refuse_settings(data: Mapping[str, Any], split: str, loader: Any) -> None:
    """Refuse what makes batches of a data set, where ``data`` has a ``loader`` for ``split``, and no data set."""
    alone = all(is_loader(each) for key in splits_in(data) for each in named_datasets(data[key]).values())
    common = [key for key in KEYS['data'] if key in data] if alone else []
    for key in (*common, *([f'{split}_dataloader'] if data.get(f'{split}_dataloader') else [])):
        raise ValueError(
            f'data.{key}={data[key]!r}{at(data, key)} is for data sets, but data.{split} is a '
            f'{type(loader).__name__}, which makes its own batches: leave it out, or give the data set '
            '(loader.dataset)'
        )


def check_split(data: Mapping[str, Any], split: str) -> None:
    """Refuse a split that ``data`` does not have."""
    if data.get(split) is not None:
        return
    held = splits_in(data)
    hint = suggestion(str(split), held)
    if split == 'test' and held and not hint:
        hint = f' (use --split {held[-1]})'
    elif not hint and (os.path.exists(split) or os.sep in str(split)):
        hint = f'. {str(split)!r} is a path: give weights as checkpoint={str(split)!r}'
    raise KeyError(f"the config's data has no {split!r} section; it has {', '.join(held) or 'none'}{hint}")


def first_samples(datasets: Mapping[str, Any], number: int) -> Subset[Any]:
    """The first ``number`` samples of the data set for ``--overfit``, or all if it has no more."""
    if '' not in datasets:
        raise TypeError(f'data.train has several data sets by name, {", ".join(datasets)}, but one is needed')
    dataset = datasets['']
    if is_loader(dataset):
        name = type(dataset).__name__
        raise WrongType(f'--overfit takes samples of a data set, but data.train is a {name}: give its data set')
    if not hasattr(dataset, '__len__') or not hasattr(dataset, '__getitem__'):
        name = type(dataset).__name__
        raise WrongType(f'--overfit takes the first samples of data.train, but {name} is a stream without a length')
    return Subset(dataset, range(min(number, len(dataset))))


def loader_settings(data: Mapping[str, Any], split: str) -> dict[str, Any]:
    """The arguments of `build_dataloader` for ``split``: those of ``data['<split>_dataloader']`` over the common ones.

    Both may have any of the names in `SAME`; the result has MMCV's.
    """
    own = f'{split}_dataloader'
    common = {key: data[key] for key in KEYS['data'] if key in data}
    refuse_marks(common, 'data')
    refuse_marks(data.get(own), 'data', own)
    settings: dict[str, Any] = {'samples_per_gpu': 1, 'workers_per_gpu': 0}
    for options, path in ((common, ()), (data.get(own) or {}, (own,))):
        settings |= {key: value for key, value in options.items() if not any(key in usual for usual in SAME.values())}
        for mmcv, usual in SAME.items():
            found = [key for key in (*usual, mmcv) if key in options]
            places = ['.'.join(('data', *path, key)) + at(data, *path, key) for key in found]
            if len(places) > 1:
                raise ValueError(f'{" and ".join(places)} are two names of the same option: keep one of them')
            if places:
                settings[mmcv] = options[found[0]]
                check_whole_number(places[0], settings[mmcv], at_least=1 if mmcv == 'samples_per_gpu' else 0)
    return settings
