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

from runnerkit.config import PreflightError, keys_of_other_tools
from runnerkit.distributed import (
    barrier,
    broadcast_object,
    from_first_rank,
    get_dist_info,
)
from runnerkit.distributed.devices import accelerator, current_index
from runnerkit.fileio.paths import is_url, local_path, shown
from runnerkit.flow.context import Context
from runnerkit.flow.preflight import Plan, preflight
from runnerkit.flow.stages.defaults import fill_in
from runnerkit.flow.stages.stage import STAGES, EngineMode, Stage
from runnerkit.flow.work_dir.resume import check_start, jobs_of_all_ranks, seed_of_resumed
from runnerkit.log_files import free_timestamp
from runnerkit.registry import placed_errors
from runnerkit.utils.env import collect_env
from runnerkit.utils.lock import FolderLock
from runnerkit.utils.logging import DETAIL, get_logger, set_verbose
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.seed import draw_seed, set_random_seed
from runnerkit.version import __version__


class InstanceBase(Stage):
    """Join the processes, open work dir and log, set the seed; then call `instance`, which a subclass overrides."""

    def __call__(self, context: Context) -> None:
        """Run the stage."""
        try:  # of the config alone, before anything is built
            context.findings = preflight(Plan.of(context))
        except PreflightError as error:
            if context.options.launcher == 'none':
                raise
            from runnerkit.distributed.launch import refuse_once

            refuse_once(error)
        fill_in(context.cfg)
        self.start_processes(context)
        if context.world_size > 1:
            from runnerkit.flow.stages.agreement import check_same_config

            check_same_config(context)
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
            from runnerkit.distributed.launch import WATCH, init_dist, shutdown
            from runnerkit.distributed.watch import Watch

            params = context.cfg.get('dist_params') or {}
            with placed_errors(context.cfg, 'dist_params'):
                init_dist(options.launcher, **params)
                watch = Watch(
                    context.logger,
                    partial(heartbeat, context),
                    partial(failure, context),
                    **{name: params[name] for name in WATCH if name in params},
                )
            # Not if the caller has joined the processes, and may go on. What is closed last comes first.
            context.closing.callback(watch.finish)
            context.closing.callback(shutdown)
            context.closing.enter_context(watch)
        context.closing.callback(wait_for_others, context)
        context.rank, context.world_size = get_dist_info()
        context.jobs = jobs_of_all_ranks()
        context['engine'] = EngineMode.SINGLE if context.world_size == 1 else EngineMode.CLUSTER
        with placed_errors('--device'):
            context.device = choose_device(options.device, options.gpu_id, context.world_size)

    def open_work_dir(self, context: Context) -> None:
        """Create the work dir (``--work-dir``, else the config's, else ``work_dirs/<config>``) and its log file.

        If it is a URL, files that must be local (logs, the config) are in ``work_dirs/<last part of the URL>``. All
        ranks use that of rank 0.
        """
        cfg, options = context.cfg, context.options
        chosen = local_path(options.work_dir or configured_work_dir(cfg))
        chosen = broadcast_object(chosen if is_url(chosen) else str(Path(chosen).absolute()))
        remote = chosen if is_url(chosen) else None
        if remote is not None:
            scheme, _, inner = remote.partition('://')
            parent, _, name = inner.rstrip('/').rpartition('/')
            chosen = os.path.join('work_dirs', name)
        context.work_dir = Path(chosen).absolute()
        from_first_rank(partial(check_start, context))
        if options.dry_run:
            remote, context.work_dir = None, Path(tempfile.mkdtemp(prefix='runnerkit-dry-run-'))
            context.closing.callback(shutil.rmtree, context.work_dir, ignore_errors=True)
        with placed_errors('--work-dir' if options.work_dir else cfg, 'work_dir', name='work dir'):
            try:
                context.work_dir.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise type(error)(
                    f'the work dir {context.work_dir} cannot be created ({error.strerror}): choose another one with '
                    '--work-dir'
                ) from error
        if not options.dry_run:
            context.timestamp = from_first_rank(partial(take_work_dir, context))
        if remote is not None:
            send_files_to(f'{scheme}://{parent}', cfg)
        cfg.work_dir = str(context.work_dir)
        log_file = context.work_dir / f'{context.timestamp}.log'
        with placed_errors(cfg, 'log_level'):
            context.logger = get_logger('runnerkit', str(log_file), cfg.get('log_level', logging.INFO))
        if context.world_size > 1 and not options.dry_run:
            from runnerkit.flow.stages.agreement import check_shared

            check_shared(context, log_file)
        set_verbose(context.logger, options.verbose)

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
        context.seed = broadcast_object(draw_seed() if seed is None else seed)
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
            # Not the newer fp32_precision: if it is set, torch.compile fails when it reads it (torch 2.13).
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = cfg.tf32
        if cfg.get('prefetch') and context.device.type != 'cuda':
            context.logger.info('prefetch=True has no effect on the device %s: it needs a GPU', context.device)

    def describe(self, context: Context) -> None:
        """Log environment, config and seed, and keep them for the checkpoints' meta."""
        cfg, logger = context.cfg, context.logger
        if others := keys_of_other_tools(cfg):
            logger.info("Ignored keys of MMCV's tools: %s", ', '.join(others))
        env = '\n'.join(f'{key}: {value}' for key, value in collect_env().items())
        text = cfg.pretty_text
        logger.info('Environment:\n%s', env, extra=DETAIL)
        logger.info('Config:\n%s', text, extra=DETAIL)
        start = f'Config {cfg.filename or "from Python"}, seed {context.seed}, device {context.device}'
        if context.device.type == 'cpu':
            threads = torch.get_num_threads()
            start += f' with {threads} thread{"s" * (threads > 1)}'
        if context.world_size > 1:
            start += f', rank {context.rank} of {context.world_size}'
        if not (context.options.dry_run or context.options.verbose):
            start += f', log {shown(context.work_dir / f"{context.timestamp}.log")}'
        logger.info('%s', start)
        context.meta = {
            'env_info': env,
            'config': text,
            'seed': context.seed,
            'exp_name': Path(cfg.filename).name if cfg.filename else 'config.py',
            'runnerkit_version': __version__,
        }


@STAGES.register_module()
class Instance(InstanceBase):
    """The default: nothing beyond what every run needs."""


def heartbeat(context: Context) -> tuple[Any, ...] | None:
    """What changes as long as the run moves; None outside of its iterations."""
    return getattr(context.runner, 'heartbeat', None)


def failure(context: Context) -> BaseException | None:
    """The error with which the run has failed."""
    outcome = getattr(context.runner, 'outcome', None)
    return None if outcome is None else outcome.error


def wait_for_others(context: Context) -> None:
    """Keep this rank from leaving the process group while another one still communicates, unless the run has failed."""
    if context.outcome is not None and context.outcome.ended_well:
        barrier()


def take_work_dir(context: Context) -> str:
    """Lock the work dir; returns a timestamp that no log there has."""
    context.closing.callback(claim_work_dir(context.work_dir).release)
    return free_timestamp(context.work_dir, context.timestamp)


def configured_work_dir(cfg: Any) -> str:
    """The work dir that a config names; by default ``work_dirs/<its name>``."""
    stem = Path(cfg.filename).stem if cfg.filename else 'run'
    return cfg.get('work_dir') or os.path.join('work_dirs', stem)


def claim_work_dir(work_dir: Path) -> FolderLock:
    """Lock the work dir against other runs."""
    try:
        return FolderLock(work_dir)
    except BlockingIOError as error:
        raise RuntimeError(
            f'another run is using this work dir: {error}. Wait for it, stop it, or choose another one with --work-dir'
        ) from None
    except OSError as error:
        raise type(error)(
            f'the work dir {work_dir} cannot be used ({error.strerror}): choose another one with --work-dir'
        ) from error


def send_files_to(url: str, cfg: Any) -> None:
    """Save checkpoints below ``url`` and copy logs there at the end, unless the config sets an ``out_dir``."""
    for section in ('checkpoint_config', 'evaluation'):
        if isinstance(cfg.get(section), Mapping):
            cfg[section].setdefault('out_dir', url)
    for hook in (cfg.get('log_config') or {}).get('hooks', []):
        if hook.get('type') == 'TextLoggerHook':
            hook.setdefault('out_dir', url)


def choose_device(name: str | None, gpu_id: int, world_size: int) -> torch.device:
    """The device called ``name``; by default the accelerator of this machine, if it has one."""
    here = accelerator()
    if name is None:  # gloo sends nothing that is on MPS
        name = 'cpu' if here is None or (here == 'mps' and world_size > 1) else here
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f'unknown device {name!r}; use --device cpu, cuda, cuda:1 …') from None
    if device.type in ('cpu', 'meta') or (device.index is not None and device.type == here):
        return device
    if device.type != here:
        what = device.type.upper()
        raise ValueError(f'no {what} device found; use --device {here or "cpu"}')
    index = current_index(device.type) if world_size > 1 else gpu_id
    return device if index is None or device.type == 'mps' else torch.device(device.type, index)
