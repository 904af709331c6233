"""Evaluating without a training, as the config's training evaluates.

The hooks are those of the config, less those that need a training (`Hook.for_evaluation`), so the precision of ``amp``
and the rings around an evaluation are the same; so are the options of ``evaluation`` and the seed of random samples.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from runnerkit.config.pretty import is_mark, refuse_marks
from runnerkit.data.named import name_of_scores
from runnerkit.flow.context import Context
from runnerkit.flow.stages.defaults import hooks_by_name, length_of_run, optimizer_config, validates
from runnerkit.hooks import HOOKS, EvalHook, Hook
from runnerkit.parallel import unwrap
from runnerkit.registry import build_from_cfg, placed_errors
from runnerkit.runner import build_runner
from runnerkit.utils.user_files import is_ours

#: What may be the matter with a hook that fails here.
NO_TRAINING = (
    'there is no training here, and no optimizer: a hook that needs one and has rings or val points says so, with the '
    'class attribute needs_training = True'
)


@contextmanager
def scoring(context: Context, folder: Path) -> Iterator[Callable[[Mapping[str, Any]], dict[str, float]]]:
    """Set ``context.runner`` to one that never trains, with the hooks of an evaluation, and enter these."""
    by_epoch = length_of_run(context.cfg)[0] and takes_optimizer(context.model)
    kind = {'type': 'EpochBasedRunner', 'max_epochs': 0} if by_epoch else {'type': 'IterBasedRunner', 'max_iters': 0}
    context.runner = runner = build_runner(kind, {'model': context.model})
    context.logger = runner.logger  # which exists without the log of a run, too
    with placed_errors(context.cfg, 'custom_hooks'):
        for hook, priority in kept_hooks(context):
            runner.register_hook(hook, priority)
    evaluation = evaluation_of(context)

    def score(checkpoint: Mapping[str, Any]) -> dict[str, float]:
        runner.restore_hooks(checkpoint)
        return evaluation.score_now(runner)

    with ExitStack() as stack:
        if any(not is_ours(type(hook).__module__) for hook in (*runner.hooks, *evaluation.hooks)):
            stack.enter_context(_folder_for_hooks(context, folder))
        try:
            stack.enter_context(runner.entered())
        except Exception as error:
            error.add_note(NO_TRAINING)
            raise
        yield score


@contextmanager
def _folder_for_hooks(context: Context, folder: Path) -> Iterator[None]:
    """Make ``folder`` the runner's work dir. Where nothing was written to a new one, it goes again."""
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        context.logger.warning(
            'hooks have no folder to write to (runner.work_dir is None): %s cannot be made (%s). Choose another one '
            'with --work-dir (work_dir=…)',
            folder,
            error.strerror,
        )
        yield
        return
    context.runner.work_dir = str(folder.absolute())
    try:
        yield
    finally:
        if is_new and context.world_size == 1:  # other ranks may be about to write
            with suppress(OSError):
                folder.rmdir()


def takes_optimizer(model: Any) -> bool:
    """Whether ``val_step`` takes what the epoch runner gives it, data and optimizer, and not the data alone."""
    step = getattr(unwrap(model), 'val_step', None)
    try:
        return step is None or inspect.signature(step).bind(None, None) is not None
    except TypeError:
        return False


def kept_hooks(context: Context) -> Iterator[tuple[Hook, Any]]:
    """What an evaluation keeps of the config's hooks and of ``context.hooks``, each with its priority."""
    cfg = context.cfg
    hooks_by_name(cfg)
    updating, custom = optimizer_config(cfg), cfg.get('custom_hooks') or ()
    if isinstance(updating, Mapping):
        updating = {'type': 'OptimizerHook', **updating}
    given: list[tuple[Any, Any]] = [] if updating is None else [(updating, 'ABOVE_NORMAL')]
    given += [(each, 'NORMAL') for each in (custom if isinstance(custom, list | tuple) else [custom])]
    for config, priority in [*given, *context.hooks]:
        kind = config.get('type') if isinstance(config, Mapping) else config
        if is_mark(kind):
            context.logger.warning('the training had the hook %s, which its config cannot hold: it is left out', kind)
        elif may_be_kept(config):
            own: Any = config.copy() if isinstance(config, dict) else {}
            priority = own.pop('priority', priority)
            hook = config if isinstance(config, Hook) else build_from_cfg(own, HOOKS)
            if (kept := hook.for_evaluation()) is not None:
                yield kept, priority


def may_be_kept(config: Any) -> bool:
    """Whether it takes the hook itself to say so: one that is surely left out may need what only a training has."""
    kind = config.get('type') if isinstance(config, Mapping) else type(config)
    kind = HOOKS.get(kind) if isinstance(kind, str) else kind
    by_class = getattr(kind, 'for_evaluation', Hook.for_evaluation) is Hook.for_evaluation
    return not (by_class and getattr(kind, 'needs_training', False))


def evaluation_of(context: Context) -> EvalHook:
    """The hook that evaluates on ``context.loaders``, as ``evaluation`` of the config says."""
    cfg = context.cfg
    options = {key: value for key, value in (cfg.get('evaluation') or {}).items() if key not in ('save_best', 'rule')}
    refuse_marks(options, 'evaluation')
    named: dict[str, Any] = {name_of_scores(loader) or '': loader for loader in context.loaders}
    with placed_errors(cfg, 'evaluation'):
        hook = evaluating_hook(named.get('', named) if len(named) == 1 else named, options)
    if validates(cfg.get('workflow'), cfg.get('data')):  # there the runner's hooks are called at the val points
        hook.hooks = [*context.runner.hooks, *hook.hooks]
    return hook


def evaluating_hook(loader: Any, options: Mapping[str, Any]) -> EvalHook:
    """The hook of ``evaluation=dict(…)``: it also calls registered hooks at the val points that they override."""
    hook = EvalHook(loader, **options)
    hook.calls_registered = True
    return hook
