"""Checks of intervals and cycles against the run's length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.utils.data import BatchSampler

from runnerkit.config.origin import Finding
from runnerkit.data.kinds import is_unbounded, length_of
from runnerkit.data.sampler import EpochBatchSampler
from runnerkit.flow.preflight.plan import Plan, amount
from runnerkit.hooks import CheckpointHook, EvalHook, OptimizerHook
from runnerkit.hooks.logger import LoggerHook
from runnerkit.parallel import named_modules
from runnerkit.utils.lazy import loaded_class


def run_is_not_empty(plan: Plan) -> Iterator[Finding]:
    """A run of no epochs or iterations, or of an unknown number of both."""
    is_open = plan.runner.max_epochs is None and plan.runner.max_iters is None
    if plan.cfg is not None and is_open and not all(map(is_unbounded, plan.loaders or [None])):
        unit = 'max_epochs' if plan.by_epoch else 'max_iters'
        yield plan.error(('runner',), 'does not set the length of the run', f'Set runner.{unit}.')
    for name in ('max_epochs', 'max_iters'):
        if getattr(plan.runner, name) == 0:
            yield plan.warning(('runner', name), 'is 0: nothing is trained', 'Give a positive number.')


def checkpoints_are_saved(plan: Plan) -> Iterator[Finding]:
    """Intervals of checkpoints that the run does not reach."""
    for hook in plan.hooks_of(CheckpointHook):
        if hook.by_epoch and not plan.by_epoch:
            yield plan.counts_no_epochs(hook, 'no checkpoint is saved')
        elif hook.interval < 1 and not hook.save_last:
            what = 'asks for none, and save_last is False: no checkpoint is saved'
            yield plan.warning(plan.key_of(hook, 'interval'), what, 'Change one of the two.')
        else:
            saved = 'only the last state' if hook.save_last else 'with save_last=False, no checkpoint'
            meaning = f'a checkpoint is saved every {amount(hook.interval, hook.by_epoch)}'
            yield from plan.too_many(hook, 'interval', hook.interval, hook.by_epoch, meaning, f'{saved} is saved')


def something_is_logged(plan: Plan) -> Iterator[Finding]:
    """Intervals of loggers that no epoch, or not even the run, reaches. One finding, for all that share the key."""
    seen = set()
    history = loaded_class('runnerkit.hooks.logger.history:HistoryHook')
    for hook in plan.hooks_of(LoggerHook):
        interval, path = getattr(hook, 'interval', None), plan.key_of(hook, 'interval')
        if isinstance(hook, history) or not isinstance(interval, int):  # the history logs when the others do
            continue
        length, unit = _logged_stretch(plan, hook)
        if length and interval > length and (path, interval) not in seen:
            seen.add((path, interval))
            what = f'{type(hook).__name__} logs every {interval} iterations, but {unit} {length}: no loss is logged'
            yield plan.warning(path, what, f'Let interval be at most {length}.')


def _logged_stretch(plan: Plan, hook: Any) -> tuple[int | None, str]:
    """The iterations within which a logger has to come to its interval, or None; and what has so many."""
    if not hook.by_epoch:
        return plan.iters, 'the run has'
    if not plan.by_epoch:
        return max((n for mode, n in plan.workflow if mode != 'val'), default=None), 'a workflow entry has'
    # A training whose last epoch is cut short has no longer epoch than its loader.
    known = [length for length in (plan.epoch_length, plan.iters) if length is not None]
    return min(known) if hook.ignore_last and plan.epoch_length is not None else None, 'an epoch has'


def intervals_end(plan: Plan) -> Iterator[Finding]:
    """Accumulation, and intervals of other hooks than the above, over more than the run has."""
    for hook in plan.hooks:
        if isinstance(hook, OptimizerHook):
            cycle, once = hook.cumulative_iters, 'the weights change once, at its end'
            meaning = f'{cycle} batches make one update'
            yield from plan.too_many(hook, 'cumulative_iters', cycle, False, meaning, once)
        # Without a by_epoch it may count either; there are at least as many iterations.
        by_epoch = getattr(hook, 'by_epoch', False)
        if isinstance(by_epoch, bool) and not isinstance(hook, (CheckpointHook, EvalHook, LoggerHook)):
            interval, never = getattr(hook, 'interval', None), 'it never does, or only at the start'
            if isinstance(interval, int):
                meaning = f'{type(hook).__name__} acts every {amount(interval, by_epoch)}'
                yield from plan.too_many(hook, 'interval', interval, by_epoch, meaning, never)


def limits_are_reached(plan: Plan) -> Iterator[Finding]:
    """A ``max_batches`` that is more than the data has."""
    evaluated = [loader for hook in plan.hooks_of(EvalHook) for loader in hook.dataloaders.values()]
    for loader in (*plan.loaders, *evaluated):
        limit, length = getattr(loader, 'max_batches', None), length_of(loader)
        if limit is not None and length is not None and length < limit:
            trains = any(loader is each for each in plan.training_loaders)
            sections = [name for name in plan.get('data') or () if plan.get('data', name, 'max_batches') == limit]
            found = next((name for name in sections if name.startswith('train') == trains), None)
            yield plan.warning(
                () if found is None else ('data', found, 'max_batches'),
                f'has no effect: the data has {length} batches, and the limit is {limit}',
                f'Let max_batches be less than {length}, or leave it out.',
            )


def batch_norms_get_several_samples(plan: Plan) -> Iterator[Finding]:
    """A last batch of one sample, on which a batch norm of features cannot train."""
    norms = (name for name, each in named_modules(plan.model).items() if isinstance(each, nn.BatchNorm1d))
    norm = next(norms, None)
    for loader in plan.training_loaders if norm is not None else ():
        batching: Any = getattr(loader, 'batch_sampler', None)
        length = length_of(loader)
        if type(batching) not in (BatchSampler, EpochBatchSampler) or length is None:
            continue
        samples, size = length_of(batching.sampler), batching.batch_size
        is_single = samples is not None and samples % size == 1 and length == samples // size + 1
        if is_single and (plan.iters is None or plan.iters >= length):
            yield plan.warning(
                ('data', 'train_dataloader', 'drop_last'),
                f'the last batch of an epoch has one sample ({samples} samples in batches of {size}): {norm} '
                '(BatchNorm1d) cannot train on it if a sample has one value per feature',
                'Set drop_last=True, or change the batch size.',
            )
