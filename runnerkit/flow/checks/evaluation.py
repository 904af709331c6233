"""Checks of what is evaluated, when, and on what."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from runnerkit.config.findings import Finding
from runnerkit.data.kinds import length_of
from runnerkit.evaluation import declared_rule, metrics_of
from runnerkit.flow.checks.plan import Plan, amount
from runnerkit.hooks import EvalHook
from runnerkit.runner.workflow import check_workflow
from runnerkit.utils.exceptions import one_line
from runnerkit.utils.suggest import suggestion


def workflow_fits(plan: Plan) -> Iterator[Finding]:
    """Modes that neither runner nor model knows, and empty loaders."""
    if not plan.loaders or not type(plan.runner).run.__module__.startswith('runnerkit.'):
        return  # there is nothing to look at, or the runner has a loop of its own
    try:
        check_workflow(list(plan.loaders), plan.workflow, plan.runner)
    except (TypeError, ValueError) as error:
        yield plan.error(('workflow',), one_line(error), "Change the workflow, or the entry's data or model.")
    if any(mode == 'val' for mode, _ in plan.workflow) and not _validates(plan):
        yield plan.error(
            ('workflow',),
            f"{type(plan.model).__name__} has no val_step for the workflow's 'val' entry",
            'Give the model a val_step(data, optimizer), or leave the entry out.',
        )


def _validates(plan: Plan) -> bool:
    return hasattr(plan.model, 'val_step') or getattr(plan.runner, 'batch_processor', None) is not None


def evaluation_can_run(plan: Plan) -> Iterator[Finding]:
    """Evaluations of nothing, or by a model that cannot."""
    for hook in plan.hooks_of(EvalHook):
        path = plan.path_of(hook)
        if length_of(hook.dataloader) == 0:
            yield plan.error(path, 'its loader gives no batches: there is nothing to evaluate on', 'Look at data.val.')
        if type(hook)._do_evaluate is not EvalHook._do_evaluate or hook._asks_dataset:
            continue
        if not _validates(plan):
            yield plan.error(
                path,
                f'{type(plan.model).__name__} has no val_step, and {type(hook.dataloader.dataset).__name__} no '
                'evaluate: neither can score',
                'Give one of them that method, or set evaluation=None.',
            )


def evaluation_is_understood(plan: Plan) -> Iterator[Finding]:
    """Options of ``evaluation`` that the data set's ``evaluate`` does not take; it would fail after the first epoch."""
    for hook in plan.hooks_of(EvalHook):
        evaluate = getattr(hook.dataloader.dataset, 'evaluate', None)
        if evaluate is None or getattr(hook.evaluate, '__func__', None) is not EvalHook.evaluate:
            continue
        try:
            inspect.signature(evaluate).bind([], logger=None, **hook.eval_kwargs)
        except TypeError as error:
            options = ', '.join(hook.eval_kwargs) or 'no options'
            yield plan.error(
                plan.path_of(hook),
                f'{type(hook.dataloader.dataset).__name__}.evaluate{inspect.signature(evaluate)} cannot be called with '
                f'(results, logger=…) and {options}: {error}',
                'Change the keys of evaluation, or the parameters of that method.',
            )
        except ValueError:
            continue  # functions written in C have no signature


def evaluation_takes_place(plan: Plan) -> Iterator[Finding]:
    """Evaluations that would begin after the run's end."""
    for hook in plan.hooks_of(EvalHook):
        if hook.by_epoch and not plan.by_epoch:
            yield plan.warning(
                plan.key_of(hook, 'by_epoch'),
                'counts epochs, which an iteration runner does not announce: no evaluation takes place',
                'Set by_epoch=False, and interval to a number of iterations.',
            )
            continue
        length = plan.length(hook.by_epoch)
        first = hook.interval if hook.start is None else max(hook.start, 1)
        if length and first > length:
            name = 'interval' if hook.start is None else 'start'
            best = f', and save_best={hook.save_best!r} keeps nothing' if hook.save_best else ''
            yield plan.warning(
                plan.key_of(hook, name),
                f'the first evaluation would follow {amount(first, hook.by_epoch)}, but the run has '
                f'{length}: none takes place{best}',
                f'Let {name} be at most {length}.',
            )


def best_score_exists(plan: Plan) -> Iterator[Finding]:
    """A ``save_best`` that names no score of the model."""
    for hook in plan.hooks_of(EvalHook):
        best = hook.save_best
        if best in (None, 'auto') or hook._asks_dataset or type(plan.model).__name__ != 'Supervised':
            continue
        metrics = list(metrics_of(plan.model))
        known = any(best == name or best.startswith(f'{name}_') for name in metrics)
        if not known and 'loss' not in best:
            there = f'has {", ".join(metrics)} and the loss' if metrics else 'has no metrics, only the loss'
            yield plan.error(
                plan.key_of(hook, 'save_best'),
                f'{best!r} is no score: {type(plan.model).__name__} {there}{suggestion(best, [*metrics, "loss"])}',
                f"Name one of them, or add model.metrics=dict({best}=dict(type='…')).",
            )


def best_score_has_a_rule(plan: Plan) -> Iterator[Finding]:
    """A ``save_best`` of which nobody knows whether more or less of it is better."""
    for hook in plan.hooks_of(EvalHook):
        best = hook.save_best
        if best in (None, 'auto') or hook._asks_dataset or hook.given_rule or declared_rule(plan.runner.model, best):
            continue
        try:
            hook._rule_by_name(best)
        except ValueError as error:
            yield plan.error(plan.key_of(hook, 'save_best'), str(error), "Write rule='greater' or rule='less'.")


EVALUATION_CHECKS = (
    workflow_fits,
    evaluation_can_run,
    evaluation_is_understood,
    evaluation_takes_place,
    best_score_exists,
    best_score_has_a_rule,
)
