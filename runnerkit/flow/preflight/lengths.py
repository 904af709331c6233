"""Checks of intervals and cycles against the run's length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from runnerkit.config.findings import Finding
from runnerkit.data.kinds import is_unbounded, length_of
from runnerkit.flow.preflight.plan import Plan, amount
from runnerkit.hooks import CheckpointHook, EvalHook, OptimizerHook
from runnerkit.hooks.logger import HistoryHook, LoggerHook


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
            yield plan.warning(
                plan.key_of(hook, 'by_epoch'),
                'counts epochs, but an iteration runner has none: no checkpoint is saved',
                'Set by_epoch=False, and interval to a number of iterations.',
            )
            continue
        length = plan.length(hook.by_epoch)
        never = hook.interval < 1
        if length and (never or hook.interval > length):
            path, unit = plan.key_of(hook, 'interval'), amount(length, hook.by_epoch)
            if not hook.save_last:
                what = 'asks for none' if never else f'is longer than the run ({unit})'
                yield plan.warning(
                    path, f'{what}, and save_last is False: no checkpoint is saved', 'Change one of the two.'
                )
            elif not never:
                yield plan.warning(
                    path,
                    f'{hook.interval} is more than the run has ({unit}): only the last state is saved',
                    f'Let interval be at most {length}, or -1 to save only the last state.',
                )


def something_is_logged(plan: Plan) -> Iterator[Finding]:
    """Intervals of loggers that no epoch, or not even the run, reaches. One finding, for all that share the key."""
    seen = set()
    for hook in plan.hooks_of(LoggerHook):
        interval, path = getattr(hook, 'interval', None), plan.key_of(hook, 'interval')
        if isinstance(hook, HistoryHook):  # it logs when the others do
            continue
        if not isinstance(interval, int) or (path, interval) in seen:
            continue
        finding = _logging(plan, hook, interval, path)
        if finding is not None:
            seen.add((path, interval))
            yield finding


def _logging(plan: Plan, hook: Any, interval: int, path: tuple[Any, ...]) -> Finding | None:
    if not hook.by_epoch:
        length, unit = plan.iters, 'the run has'
    elif plan.by_epoch:
        # A training whose last epoch is cut short has no longer epoch than its loader.
        length, unit = plan.epoch_length, 'an epoch has'
        if plan.iters is not None and length is not None:
            length = min(length, plan.iters)
        if not hook.ignore_last:
            return None
    else:
        length, unit = max((n for mode, n in plan.workflow if mode != 'val'), default=None), 'a workflow entry has'
    if not length or interval <= length:
        return None
    return plan.warning(
        path,
        f'{type(hook).__name__} logs every {interval} iterations, but {unit} {length}: no loss is logged',
        f'Let interval be at most {length}.',
    )


def cycles_end(plan: Plan) -> Iterator[Finding]:
    """Accumulation over more iterations than there are."""
    for hook in plan.hooks_of(OptimizerHook):
        cycle = hook.cumulative_iters
        if plan.iters and isinstance(cycle, int) and cycle > plan.iters:
            yield plan.warning(
                plan.key_of(hook, 'cumulative_iters'),
                f'{cycle} batches make one update, but the run has {amount(plan.iters, False)}: the weights change '
                'once, at its end',
                f'Let cumulative_iters be at most {plan.iters}.',
            )


def intervals_end(plan: Plan) -> Iterator[Finding]:
    """The ``interval`` of any other hook, by epoch or iteration as its ``by_epoch`` says."""
    for hook in plan.hooks:
        if isinstance(hook, (CheckpointHook, EvalHook, LoggerHook)):
            continue
        interval, by_epoch = getattr(hook, 'interval', None), getattr(hook, 'by_epoch', False)
        # Without a by_epoch it may count either; there are at least as many iterations.
        length = plan.length(by_epoch) if isinstance(by_epoch, bool) else None
        if isinstance(interval, int) and not isinstance(interval, bool) and length and interval > length:
            yield plan.warning(
                plan.key_of(hook, 'interval'),
                f'{type(hook).__name__} acts every {amount(interval, by_epoch)}, but the run has {length}: it never '
                'does, or only at the start',
                f'Let interval be at most {length}.',
            )


def limits_are_reached(plan: Plan) -> Iterator[Finding]:
    """A ``max_batches`` that is more than the data has."""
    evaluated = [loader for hook in plan.hooks_of(EvalHook) for loader in hook.dataloaders.values()]
    for loader in (*plan.loaders, *evaluated):
        limit, length = getattr(loader, 'max_batches', None), length_of(loader)
        if limit is not None and length is not None and length < limit:
            yield plan.warning(
                _place_of_limit(plan, limit, any(loader is each for each in plan.training_loaders)),
                f'has no effect: the data has {length} batches, and the limit is {limit}',
                f'Let max_batches be less than {length}, or leave it out.',
            )


def _place_of_limit(plan: Plan, limit: int, trains: bool) -> tuple[Any, ...]:
    sections = [name for name in plan.get('data') or () if plan.get('data', name, 'max_batches') == limit]
    found = next((name for name in sections if name.startswith('train') == trains), None)
    return () if found is None else ('data', found, 'max_batches')
