"""Stage 1: processes, seed, work dir, log, data."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Subset

from runnerkit.config import keys_of_other_tools
from runnerkit.config.known_keys import KEYS, REQUIRED, SAME
from runnerkit.config.objects import refuse_marks
from runnerkit.config.origin import written_at
from runnerkit.data import build_dataloader, build_dataset
from runnerkit.data.builder import check_dataset
from runnerkit.data.named import name_scores, named_datasets
from runnerkit.distributed import barrier, from_first_rank, get_dist_info, init_dist, same_seed_everywhere, shutdown
from runnerkit.fileio.paths import is_url, local_path, shown
from runnerkit.flow.context import Context
from runnerkit.flow.defaults import fill_in
from runnerkit.flow.earlier import finish_move, free_timestamp
from runnerkit.flow.places import check_start, seed_of_resumed
from runnerkit.flow.preflight import Plan, preflight
from runnerkit.flow.splits import mode_of, split_of, splits_in
from runnerkit.flow.stage import STAGES, EngineMode, Stage
from runnerkit.flow.switches import set_tf32
from runnerkit.registry import placed_errors
from runnerkit.runner.workflow import check_entries
from runnerkit.utils.env import collect_env
from runnerkit.utils.exceptions import WrongType
from runnerkit.utils.lock import FolderLock
from runnerkit.utils.logging import DETAIL, get_logger, set_verbose
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.seed import draw_seed, set_random_seed
from runnerkit.utils.suggest import suggestion
from runnerkit.version import __version__


class InstanceBase(Stage):
    """Join the processes, open the work dir and the log, set the seed; then what a subclass does in `instance`."""

    def __call__(self, context: Context) -> None:
        """Run the stage."""
        context.findings = preflight(Plan.of(context))  # of the config alone, before anything is built
        fill_in(context.cfg)
        self.start_processes(context)
        self.open_work_dir(context)
        self.settle_seed(context)
        self.set_backends(context)
        self.describe(context)
        self.instance(context)

    def instance(self, context: Context) -> None:
        """Do what must be done before the data and the network are built, such as a download (on rank 0)."""

    def start_processes(self, context: Context) -> None:
        """Join the other processes of a distributed run, and choose the device of this one."""
        options = context.options
        if options.launcher != 'none':
            init_dist(options.launcher, **context.cfg.get('dist_params', {'backend': 'nccl'}))
            context.closing.callback(shutdown)  # not if the caller has joined the processes, and may go on
        context.closing.callback(wait_for_others, context)
        context.rank, context.world_size = get_dist_info()
        context['engine'] = EngineMode.SINGLE if context.world_size == 1 else EngineMode.CLUSTER
        context.device = choose_device(options.device, options.gpu_id, context.world_size)

    def open_work_dir(self, context: Context) -> None:
        """Create the work dir (``--work-dir``, else the config's, else ``work_dirs/<config>``) and its log file.

        If it is a URL, files that must be local (logs, the config) are in ``work_dirs/<last part of the URL>``.
        """
        cfg, options = context.cfg, context.options
        chosen = local_path(options.work_dir or work_dir_of(cfg))
        remote = chosen if is_url(chosen) else None
        if remote is not None:
            parent, name = split_url(remote)
            chosen = os.path.join('work_dirs', name)
        context.work_dir = Path(chosen).absolute()
        from_first_rank(partial(check_start, context))
        if options.dry_run:
            remote, context.work_dir = None, Path(tempfile.mkdtemp(prefix='runnerkit-dry-run-'))
            context.closing.callback(shutil.rmtree, context.work_dir, ignore_errors=True)
        with placed_errors(None if options.work_dir else cfg, 'work_dir', name='work dir'):
            try:
                context.work_dir.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise type(error)(
                    f'the work dir {context.work_dir} cannot be created ({error.strerror}): choose another one with '
                    '--work-dir'
                ) from error
        if not options.dry_run:
            context.timestamp = from_first_rank(partial(self.take_work_dir, context))
        if remote is not None:
            send_files_to(parent, cfg)
        cfg.work_dir = str(context.work_dir)
        log_file = context.work_dir / f'{context.timestamp}.log'
        with placed_errors(cfg, 'log_level'):
            context.logger = get_logger('runnerkit', str(log_file), cfg.get('log_level', logging.INFO))
        set_verbose(context.logger, options.verbose)

    def take_work_dir(self, context: Context) -> str:
        """Lock the work dir and finish what a killed run was moving; returns a timestamp that no log there has."""
        context.closing.callback(claim(context.work_dir).release)
        finish_move(context.work_dir)
        return free_timestamp(context.work_dir, context.timestamp)

    def settle_seed(self, context: Context) -> None:
        """Use the seed from ``--seed``, else the config, else the run that is resumed, else a random one.

        It is the same on all ranks.
        """
        cfg, options = context.cfg, context.options
        seed = options.seed if options.seed is not None else cfg.get('seed')
        with placed_errors(cfg, 'seed'):
            check_whole_number('seed', seed, at_least=0, or_none=True)
        if seed is None:
            seed = seed_of_resumed(context)
        context.seed = same_seed_everywhere(draw_seed() if seed is None else seed)
        cfg.seed = context.seed
        set_random_seed(context.seed, deterministic=options.deterministic or bool(cfg.get('deterministic')))

    def set_backends(self, context: Context) -> None:
        """Apply the config's settings for torch's backends, and its number of threads."""
        cfg = context.cfg
        if cfg.get('num_threads') is not None:
            torch.set_num_threads(cfg.num_threads)
        benchmark, deterministic = cfg.get('cudnn_benchmark'), context.options.deterministic or cfg.get('deterministic')
        if benchmark is not None and not (benchmark and deterministic):
            torch.backends.cudnn.benchmark = benchmark
        if cfg.get('tf32') is not None:
            set_tf32(cfg.tf32)
        if cfg.get('prefetch') and context.device.type != 'cuda':
            context.logger.info('prefetch=True has no effect on the device %s: it needs a GPU', context.device)

    def describe(self, context: Context) -> None:
        """Log environment, config and seed, and keep them for the checkpoints' meta."""
        cfg, logger = context.cfg, context.logger
        if others := keys_of_other_tools(cfg):
            logger.info("Keys of MMCV's tools that have no meaning here: %s", ', '.join(others))
        env = '\n'.join(f'{key}: {value}' for key, value in collect_env().items())
        text = cfg.pretty_text
        logger.info('Environment:\n%s', env, extra=DETAIL)
        logger.info('Config:\n%s', text, extra=DETAIL)
        logger.info('Config %s, seed %d, %s', cfg.filename or 'from Python', context.seed, resources(context))
        if not (context.options.dry_run or context.options.verbose):
            log_file = shown(context.work_dir / f'{context.timestamp}.log')
            logger.info('Environment, config and hooks are in %s (or --verbose)', log_file)
        context.meta = {
            'env_info': env,
            'config': text,
            'seed': context.seed,
            'exp_name': Path(cfg.filename).name if cfg.filename else 'config.py',
            'runnerkit_version': __version__,
        }

    def load_data(self, context: Context) -> None:
        """Build a loader for every workflow entry, and for the evaluation.

        An entry that validates on several data sets by name becomes one entry for each of them.
        """
        workflow = context.cfg.get('workflow', [('train', 1)])
        with placed_errors(context.cfg, 'workflow'):
            check_entries(workflow)
        data = required_section(context.cfg, 'data')
        splits = [split_of(mode, data) for mode, _ in workflow]
        if context.options.overfit is None:
            datasets = {split: self.build_datasets(data, split) for split in dict.fromkeys(splits)}
        else:
            few = first_samples(self.build_dataset(data, 'train'), context.options.overfit)
            dropped = (
                f'; {type(few.dataset).__name__}.evaluate is not asked: the scores are those of the model'
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
                loaders = self.build_loaders(context, data, split, datasets[split], mode != 'val', prefix)
            if mode != 'val' and '' not in loaders:
                raise TypeError(
                    f'data.{split} has several data sets by name ({", ".join(loaders)}), but the workflow entry '
                    f'{(name, n)!r} trains on one: give a list, whose data sets are concatenated, or a split for each'
                )
            context.workflow += [(mode, n)] * len(loaders)
            context.loaders += loaders.values()
        if context.options.validate and context.cfg.get('evaluation') is not None and data.get('val') is not None:
            loaders = self.build_loaders(context, data, 'val', datasets.get('val'))
            context.val_loader = loaders.get('', loaders)

    def build_datasets(self, data: Mapping[str, Any], split: str) -> dict[str, Any]:
        """The data sets of ``data[split]`` by name; a single one is called ``''``."""
        with placed_errors(data, split, name=f'data.{split}'):
            check_split(data, split)
            refuse_marks(data[split], 'data', split)
            datasets = {name: build_dataset(config) for name, config in named_datasets(data[split]).items()}
            for dataset in datasets.values():
                check_dataset(dataset)
            return datasets

    def build_dataset(self, data: Mapping[str, Any], split: str) -> Any:
        """The data set of ``data[split]``, where there is only one."""
        datasets = self.build_datasets(data, split)
        if '' not in datasets:
            raise TypeError(f'data.{split} has several data sets by name, {", ".join(datasets)}, but one is needed')
        return datasets['']

    def build_loaders(
        self,
        context: Context,
        data: Mapping[str, Any],
        split: str,
        datasets: Mapping[str, Any] | None = None,
        trains: bool = False,
        prefix: str = '',
    ) -> dict[str, Any]:
        """The loaders of ``data[split]`` by the data sets' names; ``prefix`` and name stand before each's scores."""
        loaders = {}
        for name, dataset in (self.build_datasets(data, split) if datasets is None else datasets).items():
            loaders[name] = loader = self.build_loader(context, data, split, dataset, trains)
            if full := '/'.join(part for part in (prefix, name) if part):
                name_scores(loader, full)
        return loaders

    def build_loader(
        self, context: Context, data: Mapping[str, Any], split: str, dataset: Any = None, trains: bool | None = None
    ) -> Any:
        """The loader of ``data[split]``, see `loader_settings`."""
        settings = loader_settings(data, split)
        dataset = self.build_dataset(data, split) if dataset is None else dataset
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


@STAGES.register_module()
class Instance(InstanceBase):
    """The default: nothing beyond what every run needs."""


def wait_for_others(context: Context) -> None:
    """Keep this rank from leaving the process group while another one still communicates, unless the run has failed."""
    if context.outcome is not None and context.outcome.ended_well:
        barrier()


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
        hint = f' (--split {held[-1]} evaluates on that one)'
    elif not hint and (os.path.exists(split) or os.sep in str(split)):
        hint = f'. {str(split)!r} is a path: weights are given as checkpoint={str(split)!r}'
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


def work_dir_of(cfg: Any) -> str:
    """The work dir that a config names; by default ``work_dirs/<its name>``."""
    stem = Path(cfg.filename).stem if cfg.filename else 'run'
    return cfg.get('work_dir') or os.path.join('work_dirs', stem)


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
        where = written_at(data, (*path, key))
        return '.'.join(('data', *path, key)) + (f' ({where})' if where else '')

    named = dict(options)
    for ours, theirs in SAME:
        if theirs in options and ours in options:
            raise ValueError(f'{placed(theirs)} and {placed(ours)} are two names of the same option: give one of them')
        key = theirs if theirs in options else ours
        if key in options:
            check_whole_number(placed(key), options[key], at_least=1 if ours == 'samples_per_gpu' else 0)
            named[ours] = named.pop(key)
    return named


def claim(work_dir: Path) -> FolderLock:
    """Lock the work dir against other runs.

    Raises:
        RuntimeError: another run uses it.
        OSError: it is not writable.
    """
    try:
        return FolderLock(work_dir)
    except BlockingIOError as error:
        raise RuntimeError(
            f'another run uses this work dir, and the two would overwrite each other: {error}. Wait for it or '
            'stop it, or choose another work dir (--work-dir)'
        ) from None
    except OSError as error:
        raise type(error)(
            f'the work dir {work_dir} cannot be used ({error.strerror}): choose another one with --work-dir'
        ) from error


def resources(context: Context) -> str:
    """What the run computes with, as text."""
    threads = torch.get_num_threads()
    text = f'device {context.device}'
    if context.device.type == 'cpu':
        text += f' with {threads} thread{"s" * (threads > 1)}'
    return text + (f', rank {context.rank} of {context.world_size}' if context.world_size > 1 else '')


def split_url(url: str) -> tuple[str, str]:
    """The parent of a URL, and its last part."""
    scheme, _, inner = url.partition('://')
    parent, _, name = inner.rstrip('/').rpartition('/')
    return f'{scheme}://{parent}', name


def send_files_to(url: str, cfg: Any) -> None:
    """Save checkpoints below ``url`` and copy logs there at the end, unless the config sets an ``out_dir``."""
    for section in ('checkpoint_config', 'evaluation'):
        if isinstance(cfg.get(section), Mapping):
            cfg[section].setdefault('out_dir', url)
    for hook in (cfg.get('log_config') or {}).get('hooks', []):
        if hook.get('type') == 'TextLoggerHook':
            hook.setdefault('out_dir', url)


def choose_device(name: str | None, gpu_id: int, world_size: int) -> torch.device:
    """The device called ``name``; by default a GPU if there is one."""
    if name is None:
        name = 'cuda' if torch.cuda.is_available() else 'cpu'
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f'there is no device {name!r}: give cpu, cuda, cuda:1 …') from None
    if device.type != 'cuda':
        return device
    if not torch.cuda.is_available():
        raise ValueError(f'there is no GPU here for the device {name!r}: give cpu')
    index = torch.cuda.current_device() if world_size > 1 else gpu_id
    return torch.device('cuda', index) if device.index is None else device


def required_section(cfg: Any, key: str) -> Any:
    """``cfg[key]``.

    Raises:
        KeyError: the config has no such section.
    """
    if cfg.get(key) is None:
        others = [name for name in REQUIRED if cfg.get(name) is None and name != key]
        if cfg.get('total_epochs') is not None and 'runner' in others:
            others.remove('runner')
        missing = ', '.join(others)
        place = written_at(cfg, (key,)) if key in cfg else ''
        raise KeyError(
            f'the config {cfg.filename or ""} has no {key!r}{f" ({place})" if place else ""}'
            f'{f" (nor {missing})" if missing else ""}; a run needs {", ".join(REQUIRED)}'
        )
    return cfg[key]
