"""Stage 4: the runner with its hooks, and the training itself."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any

from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from runnerkit.data.kinds import length_of
from runnerkit.distributed import from_first_rank
from runnerkit.flow.context import Context
from runnerkit.flow.preflight import Plan, is_complete, preflight, show_findings
from runnerkit.flow.stages.defaults import is_experiment, runner_config, updating
from runnerkit.flow.stages.network import build_experiment, runner_arguments
from runnerkit.flow.stages.stage import STAGES, Stage
from runnerkit.flow.use.scoring import evaluating_hook
from runnerkit.flow.work_dir.journal import recording_hooks
from runnerkit.flow.work_dir.snapshot import take_over
from runnerkit.hooks import StopAfterHook
from runnerkit.nn import Supervised
from runnerkit.parallel import unwrap
from runnerkit.parallel.steps import Steps, check_step
from runnerkit.parallel.wrappers import is_fsdp2
from runnerkit.registry import placed_errors
from runnerkit.runner import build_runner
from runnerkit.runner.workflow import Workflow, first_training_loader, trains
from runnerkit.utils.env import acts_as_mmcv
from runnerkit.utils.lazy import EXPERIMENT, loaded_class
from runnerkit.utils.logging import is_terminal


def training_line(context: Context) -> str:
    """Model, length and training data: ``LeNet (80,250 parameters, SGD) for 12 epochs on Digits (3,500 samples)``."""
    loader = first_training_loader(context.loaders, context.workflow, context.runner)
    data = '' if getattr(loader, 'dataset', None) is None else f' on {data_of(loader, batches=False)}'
    return f'{model_of(context)} for {length_in_words(context.runner, context.workflow)}{data}'


def model_of(context: Context) -> str:
    """The model's class, how many parameters it has, and what updates them."""
    model = unwrap(context.runner.model)
    named = context.optimizer if isinstance(context.optimizer, Mapping) else {'': context.optimizer}
    optimizers = [f'{type(each).__name__} {name}'.rstrip() for name, each in named.items() if each is not None]
    parameters = list(model.parameters())
    is_known = not any(map(is_lazy, parameters))
    count = f'{sum(each.numel() for each in parameters):,} parameters' if is_known else 'lazy parameters'
    kind = type(model.model if isinstance(model, Supervised) else model).__name__
    return f'{kind} ({", ".join([count, *(optimizers or ["no optimizer"])])})'


def data_of(loader: Any, batches: bool = True) -> str:
    """The class of the loader's data set, with the number of samples and of ``batches`` where they are known."""
    data = getattr(loader, 'dataset', None)
    counts = [(length_of(data), 'samples'), (length_of(loader) if batches else None, 'batches')]
    known = ', '.join(f'{count:,} {what}' for count, what in counts if count is not None)
    return f'{type(data).__name__} ({known})' if known else type(data).__name__


def length_in_words(runner: Any, workflow: Workflow) -> str:
    """How long the run is; with several trainings in ``workflow``, also how often it is repeated."""
    limits = ((runner.max_epochs, 'epochs'), (runner.max_iters, 'iterations'))
    limit, unit = limits[0] if runner.by_epoch and runner.max_epochs is not None else limits[1]
    if limit is None:
        return 'as long as the stream lasts'
    parts = [n for mode, n in workflow if trains(mode, runner)]
    repeated = f' (the workflow {limit // sum(parts)} times)' if len(parts) > 1 and limit % sum(parts) == 0 else ''
    return f'{limit} {unit[:-1] if limit == 1 else unit}{repeated}'


class RunnerBase(Stage):
    """Build the runner, register its hooks, check the plan, resume; then call `run`, which a subclass overrides."""

    def __call__(self, context: Context) -> None:
        """Run the stage."""
        is_kept = not context.options.dry_run
        self.build_runner(context)
        runner = context.runner
        # A wrapper of the user's own may spread plain tensors over the ranks.
        runner.repairs_weights = isinstance(runner.model, DistributedDataParallel) or is_fsdp2(runner.model)
        runner.lr_scaled_for = context.lr_scaled_for
        self.register_hooks(context)
        # Rank 0 looks for all: others may lack its hooks, or a part of a small data set.
        context.findings = from_first_rank(lambda: preflight(Plan.of(context)))
        self.resume(context)
        if is_kept:  # a dry run has them below what it shows
            show_findings(context, 'Before the first batch')
        with context.guard(context):
            try:
                self.begin(context)
                if is_kept:
                    for hook in recording_hooks(context):
                        runner.register_hook(hook, priority='LOWEST')
                    context.logger.info('Training %s', training_line(context))
                with runner.custom_loop(context.loaders, context.workflow):
                    self.run(context)
            finally:
                context.outcome = runner.outcome or context.outcome

    def run(self, context: Context) -> None:
        """Train: ``context.runner`` is ready, ``context.loaders`` and ``context.workflow`` belong together.

        Your own loop calls ``context.runner.train(loader)``; see `custom_loop` of the runner.
        """
        raise NotImplementedError(f'{type(self).__name__} must override run')

    def save(self, epoch: int, context: Context, is_fleet: bool = False) -> None:
        """Save a checkpoint, on every rank: PaddleRec's name for ``context.runner.save()``.

        Args:
            epoch: no effect; the runner counts.
            context: of the run.
            is_fleet: no effect.
        """
        context.runner.save()

    def begin(self, context: Context) -> None:
        """Make the work dir this run's; only now, so that a run that is refused changes nothing there."""
        if not context.options.dry_run:
            from_first_rank(partial(take_over, context))

    def resume(self, context: Context) -> None:
        """Resume from the checkpoint that the startup stage has noted, if any."""
        checkpoint = context.resume_from
        if checkpoint is not None:
            context.runner.config_wins = True
            is_of_config = not context.options.resume_from and context.cfg.get('resume_from')
            with placed_errors(context.cfg if is_of_config else None, 'resume_from'):
                context.runner.resume(checkpoint)
            context.findings += is_complete(Plan.of(context), checkpoint)

    def build_runner(self, context: Context) -> None:
        """Build the runner that the config names."""
        if is_experiment(context.cfg):
            if context.runner is None:  # a network stage of the user's own
                build_experiment(context)
            return
        with placed_errors(context.cfg, 'runner'):
            config = runner_config(context.cfg)
        is_ours = config.get('type') in ('EpochBasedRunner', 'IterBasedRunner')
        if is_ours and 'model' not in config and 'batch_processor' not in config:
            with placed_errors(context.cfg, 'model'):  # the runner would also find it, and blame its section
                check_step(context.model, None)
        with placed_errors(context.cfg, 'runner'):
            context.runner = build_runner(config, runner_arguments(context))
        if not isinstance(context.model, Steps) and context.device.type != 'cpu':
            context.runner.batch_device = context.device
        context.runner.timestamp = context.timestamp

    def register_hooks(self, context: Context) -> None:
        """Register the standard hooks, the evaluation hook and the custom hooks."""
        cfg, runner = context.cfg, context.runner
        runner.keeps_random_states = True
        if not acts_as_mmcv():
            runner.evaluates_on = 'val' if context.options.overfit is None else 'train'
        is_own = isinstance(runner, loaded_class(EXPERIMENT))  # it registers what updates and evaluates
        runner.register_training_hooks(
            None if is_own else cfg.get('lr_config'),
            None if is_own else updating(cfg),
            momentum_config=None if is_own else cfg.get('momentum_config'),
            checkpoint_config=cfg.get('checkpoint_config'),
            log_config=cfg.get('log_config'),
            timer_config=cfg.get('timer_config', {'type': 'IterTimerHook'}),
        )
        if is_own:
            runner.setup_hooks()
        else:
            if context.val_loader is not None:
                with placed_errors(cfg, 'evaluation'):
                    evaluation = {'by_epoch': runner.by_epoch, **cfg.evaluation}
                    runner.register_hook(evaluating_hook(context.val_loader, evaluation), priority='LOW')
            with placed_errors(cfg, 'custom_hooks'):
                runner.register_custom_hooks(cfg.get('custom_hooks'))
        if is_terminal() and context.rank == 0:
            from runnerkit.hooks.logger import ProgressBarHook

            runner.register_hook(ProgressBarHook(), priority='LOWEST')
        runner.register_profiler_hook(cfg.get('profiler_config'))
        if context.options.stop_after is not None:
            runner.register_hook(StopAfterHook(context.options.stop_after))
        for hook, priority in context.hooks:
            runner.register_hook(hook, priority=priority)


@STAGES.register_module(name=['TrainStage', 'Runner'])
class TrainStage(RunnerBase):
    """The default: the runner's workflow. PaddleRec calls it ``Runner``."""

    def run(self, context: Context) -> None:
        """Run the workflow."""
        run = context.runner.run
        if isinstance(context.runner, loaded_class(EXPERIMENT)) and not inspect.signature(run).parameters:
            run()  # a loop of the user's own, over its own loaders
        else:
            run(context.loaders, context.workflow)


#: The name in PaddleRec, and of earlier versions.
Runner = TrainStage
