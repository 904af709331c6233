"""Stage 2: the model, its optimizer, and the runner with its hooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from runnerkit.config.objects import refuse_marks
from runnerkit.distributed import from_first_rank
from runnerkit.flow.context import Context
from runnerkit.flow.defaults import has_custom
from runnerkit.flow.instance import loader_settings, required_section
from runnerkit.flow.preflight import Plan, preflight
from runnerkit.flow.switches import compile_options, use_channels_last
from runnerkit.hooks import EvalHook, OptimizerHook
from runnerkit.hooks.logger import ProgressBarHook
from runnerkit.nn import build_model
from runnerkit.nn.compiled import compile_model
from runnerkit.optim import build_optimizer
from runnerkit.parallel import MMDataParallel, MMDistributedDataParallel
from runnerkit.registry import placed_errors
from runnerkit.runner import build_runner
from runnerkit.runner.checks import check_step
from runnerkit.utils.logging import is_terminal
from runnerkit.utils.seed import set_random_seed

_RUNNER = "a dict such as dict(type='EpochBasedRunner', max_epochs=12)"

DEFAULT_TIMER = {'type': 'IterTimerHook'}


class Network:
    """Build the model on its device, the optimizer, the runner and its hooks."""

    def __call__(self, context: Context) -> None:
        """Run the stage."""
        self.build_model(context)
        self.build_optimizer(context)
        self.build_runner(context)
        self.register_hooks(context)
        # Rank 0 looks for all: others may lack its hooks, or a part of a small data set.
        context.findings = from_first_rank(lambda: preflight(Plan.of(context)))

    def build_model(self, context: Context) -> None:
        """Build and initialise the model. Its weights depend on the seed only, not on what data sets drew.

        A model that is given as an object keeps its weights.
        """
        set_random_seed(context.seed)
        config = required_section(context.cfg, 'model')
        refuse_marks(config, 'model')
        with placed_errors(context.cfg, 'model'):
            model: Any = build_model(config)
        if model is not config and hasattr(model, 'init_weights'):
            model.init_weights()
        model = model.to(context.device)
        if context.cfg.get('channels_last'):
            use_channels_last(model)
        options = compile_options(context.cfg)
        if options is not None:
            with placed_errors(context.cfg, 'compile'):
                compile_model(model, **options)
        context.model = wrapped(model, context)
        if context.options.diff_seed:  # only now, so that all ranks have the same weights
            set_random_seed(context.seed, use_rank_shift=True)

    def build_optimizer(self, context: Context) -> None:
        """Build the optimizer.

        With ``--auto-scale-lr`` or ``auto_scale_lr.enable``, its learning rate is scaled with the batch size.
        """
        cfg = context.cfg
        config = required_section(cfg, 'optimizer')
        if context.options.auto_scale_lr or (cfg.get('auto_scale_lr') or {}).get('enable'):
            with placed_errors(cfg, 'auto_scale_lr'):
                config = scaled_lr(config, cfg, context)
        with placed_errors(cfg, 'optimizer'):
            context.optimizer = build_optimizer(context.model, config)

    def build_runner(self, context: Context) -> None:
        """Build the runner that the config names."""
        default_args = {
            'model': context.model,
            'optimizer': context.optimizer,
            'work_dir': str(context.work_dir),
            'logger': context.logger,
            'meta': context.meta,
        }
        with placed_errors(context.cfg, 'runner'):
            config = runner_config(context.cfg)
        is_ours = config.get('type') in ('EpochBasedRunner', 'IterBasedRunner')
        if is_ours and 'model' not in config and 'batch_processor' not in config:
            with placed_errors(context.cfg, 'model'):  # the runner would find it, too, and blame its own section
                check_step(context.model, None)
        with placed_errors(context.cfg, 'runner'):
            context.runner = build_runner(config, default_args)
        context.runner.timestamp = context.timestamp

    def register_hooks(self, context: Context) -> None:
        """Register the standard hooks, the evaluation hook and the custom hooks."""
        cfg, runner = context.cfg, context.runner
        by_config: dict[str, Any] = {
            'lr_config': cfg.get('lr_config'),
            'optimizer_config': updating(cfg),
            'checkpoint_config': cfg.get('checkpoint_config'),
            'log_config': cfg.get('log_config'),
            'momentum_config': cfg.get('momentum_config'),
            'timer_config': cfg.get('timer_config', DEFAULT_TIMER),
        }
        runner.register_training_hooks(**by_config)
        if context.val_loader is not None:
            with placed_errors(cfg, 'evaluation'):
                evaluation = {'by_epoch': runner.by_epoch, **cfg.evaluation}
                runner.register_hook(EvalHook(context.val_loader, **evaluation), priority='LOW')
        if is_terminal() and context.rank == 0:
            runner.register_hook(ProgressBarHook(), priority='LOWEST')
        runner.register_custom_hooks(cfg.get('custom_hooks'))
        runner.register_profiler_hook(cfg.get('profiler_config'))


def wrapped(model: torch.nn.Module, context: Context) -> torch.nn.Module:
    """``model`` in a DDP wrapper if there are several processes, in a DataParallel wrapper on a single GPU."""
    on_gpu = context.device.type == 'cuda'
    if context.world_size > 1:
        return MMDistributedDataParallel(
            model,
            device_ids=[context.device.index] if on_gpu else None,
            find_unused_parameters=bool(context.cfg.get('find_unused_parameters', False)),
        )
    return MMDataParallel(model, device_ids=[context.device.index]) if on_gpu else model


def scaled_lr(config: Any, cfg: Any, context: Context) -> Any:
    """The optimizer's config with its learning rate scaled by batch size over ``auto_scale_lr.base_batch_size``.

    Source: Goyal et al., "Accurate, Large Minibatch SGD", 2017 (the linear scaling rule).
    """
    base = (cfg.get('auto_scale_lr') or {}).get('base_batch_size')
    if not base:
        raise ValueError(
            '--auto-scale-lr needs auto_scale_lr=dict(base_batch_size=…) in the config: the batch size the lr is '
            'meant for'
        )
    batch = context.world_size * loader_settings(cfg.data, 'train')['samples_per_gpu']
    scaled = config.copy()
    scaled['lr'] = config['lr'] * batch / base
    context.logger.info(
        'lr scaled from %g to %g for a batch of %d instead of %d', config['lr'], scaled['lr'], batch, base
    )
    return scaled


def runner_config(cfg: Any) -> Any:
    """The config's ``runner``; older configs have ``total_epochs``."""
    if isinstance(cfg.get('runner'), Mapping):
        return cfg.runner
    if cfg.get('runner') is not None:
        raise TypeError(f'runner must be {_RUNNER}, but got {cfg.runner!r}')
    if cfg.get('total_epochs') is not None:
        return {'type': 'EpochBasedRunner', 'max_epochs': cfg.total_epochs}
    raise KeyError(f"the config has no 'runner', {_RUNNER}")


def optimizer_config(cfg: Any) -> Any:
    """``optimizer_config``, by default empty, with ``amp`` or MMCV's ``fp16`` merged into it.

    Returns:
        None if it is None, or if it is missing and one of ``custom_hooks`` is an OptimizerHook.
    """
    config = cfg.get('optimizer_config')
    if config is None and ('optimizer_config' in cfg or has_custom(cfg, OptimizerHook)):
        return None
    amp, fp16 = cfg.get('amp'), cfg.get('fp16')
    if config is not None and amp is None and fp16 is None:
        return config
    merged = {} if config is None else config.copy()
    if amp is not None:
        merged['amp'] = amp
    elif fp16 is not None:
        merged.update(amp='fp16', loss_scale=fp16.get('loss_scale', 512.0))
    return merged


def updating(cfg: Any) -> Any:
    """What updates the weights: the config's hook, or one that leaves the updates to a step that makes its own."""
    config = optimizer_config(cfg)
    if 'optimizer_config' not in cfg and config is not None:
        hook = OptimizerHook(**config)
        hook.gives_way = True
        return hook
    return config
