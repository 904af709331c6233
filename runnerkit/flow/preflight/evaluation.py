"""Checks of what is evaluated, when, and on what."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from runnerkit.config.origin import Finding
from runnerkit.data.kinds import is_empty, is_limited
from runnerkit.data.named import name_of_scores
from runnerkit.evaluation import metrics_of, rule_of
from runnerkit.flow.preflight.plan import Plan, amount
from runnerkit.flow.stages.defaults import splits_in
from runnerkit.hooks import EvalHook
from runnerkit.hooks.param_schedule import ScheduleHook
from runnerkit.runner.workflow import check_workflow
from runnerkit.utils.exceptions import one_line
from runnerkit.utils.lazy import loaded_class
from runnerkit.utils.numbers import names_a_loss
from runnerkit.utils.suggest import suggestion
from runnerkit.utils.user_files import is_ours


def workflow_fits(plan: Plan) -> Iterator[Finding]:
    """Modes that neither runner nor model knows, and empty loaders."""
    if not plan.loaders or not is_ours(type(plan.runner).run.__module__):
        return  # there is nothing to look at, or the runner has its own loop
    try:
        check_workflow(list(plan.loaders), plan.workflow, plan.runner)
    except (TypeError, ValueError) as error:
        splits = splits_in(plan.get('data') or {})
        also = f', or rename its split to val_… or train_… (data has {", ".join(splits)})' if splits else ''
        yield plan.error(('workflow',), one_line(error), f"Change the workflow, or the entry's data or model{also}.")
    if any(mode == 'val' for mode, _ in plan.workflow) and not _validates(plan):
        what = f"{type(plan.model).__name__} has no val_step for the workflow's 'val' entry"
        yield plan.error(('workflow',), what, 'Give the model a val_step(data, optimizer), or leave the entry out.')


def _validates(plan: Plan) -> bool:
    return hasattr(plan.model, 'val_step') or getattr(plan.runner, 'batch_processor', None) is not None


def evaluation_can_run(plan: Plan) -> Iterator[Finding]:
    """Evaluations of nothing, or by a model that cannot."""
    for hook in plan.hooks_of(EvalHook):
        path = plan.path_of(hook)
        for name, loader in hook.dataloaders.items():
            if is_empty(loader):
                what = f'its loader{f" {name!r}" if name else ""} gives no batches to evaluate on'
                yield plan.error(path, what, f'Check data.val{f".{name}" if name else ""}.')
            if hook.asks_dataset_of(loader) and is_limited(loader):
                yield plan.error(
                    ('data', 'val_dataloader', 'max_batches'),
                    f'{type(loader.dataset).__name__}.evaluate needs the predictions of all samples, but '
                    f'max_batches={loader.max_batches} leaves some out',
                    'Leave max_batches out, or make the data set itself smaller.',
                )
            is_plain = type(hook)._do_evaluate is EvalHook._do_evaluate and not hook.asks_dataset_of(loader)
            if is_plain and not _validates(plan):
                model, dataset = type(plan.model).__name__, type(getattr(loader, 'dataset', None)).__name__
                what = f'nothing computes scores: {model} has no val_step, and {dataset} no evaluate'
                yield plan.error(path, what, 'Write one of the two methods, or set evaluation=None.')


def evaluation_is_understood(plan: Plan) -> Iterator[Finding]:
    """Options of ``evaluation`` that the data set's ``evaluate`` does not take; it would fail after the first epoch."""
    pairs = [(hook, loader) for hook in plan.hooks_of(EvalHook) for loader in hook.dataloaders.values()]
    for hook, loader in pairs:
        dataset = getattr(loader, 'dataset', None)  # an Experiment's valid_loader may be anything
        evaluate = getattr(dataset, 'evaluate', None)
        if evaluate is None or getattr(hook.evaluate, '__func__', None) is not EvalHook.evaluate:
            continue
        try:
            inspect.signature(evaluate).bind([], logger=None, **hook.eval_kwargs)
        except TypeError as error:
            what = (
                f'{type(dataset).__name__}.evaluate{inspect.signature(evaluate)} cannot be called with '
                f'(results, logger=…) and {", ".join(hook.eval_kwargs) or "no options"}: {error}'
            )
            way_out = 'Change the keys of evaluation, or the parameters of that method.'
            yield plan.error(plan.path_of(hook), what, way_out)
        except ValueError:
            continue  # functions written in C have no signature


def evaluation_takes_place(plan: Plan) -> Iterator[Finding]:
    """Evaluations that would begin after the run's end."""
    for hook in plan.hooks_of(EvalHook):
        nothing = 'nothing is evaluated'
        if hook.by_epoch and not plan.by_epoch:
            yield plan.counts_no_epochs(hook, nothing)
            continue
        name, first = ('interval', hook.interval) if hook.start is None else ('start', max(hook.start, 1))
        best = f', and save_best={hook.save_best!r} keeps nothing' if hook.save_best else ''
        meaning = f'the first evaluation would follow {amount(first, hook.by_epoch)}'
        yield from plan.too_many(hook, name, first, hook.by_epoch, meaning, f'{nothing}{best}')


def scores_exist(plan: Plan) -> Iterator[Finding]:
    """A ``save_best``, or a ``monitor`` of `EarlyStoppingHook`, that names no score of the model."""
    if plan.runner is None or type(plan.model).__name__ not in ('Supervised', 'Pairs'):
        return
    wanted = [
        (hook, 'save_best', hook.save_best)
        for hook in plan.hooks_of(EvalHook)
        if hook.save_best not in (None, 'auto') and not hook._asks_dataset
    ]
    if not any(hook._asks_dataset for hook in plan.hooks_of(EvalHook)):
        wanted += [(hook, 'monitor', hook.monitor) for hook in _early_stopping(plan)]
    metrics = list(metrics_of(plan.model))
    for hook, key, score in wanted:
        name = score.rpartition('/')[2]  # without the data set's
        if not _is_known(score, metrics):
            there = [*metrics, 'loss']
            what = f'unknown score {score!r}; available: {", ".join(there)}{suggestion(score, there)}'
            way_out = f"Use one of them, or add model.metrics=dict({name}=dict(type='…'))."
            yield plan.error(plan.key_of(hook, key), what, way_out)
            continue
        evaluations = [hook] if isinstance(hook, EvalHook) else plan.hooks_of(EvalHook)
        loaders = [loader for each in evaluations for loader in each.dataloaders.values()]
        if not isinstance(hook, EvalHook):  # it also has the scores of the workflow's entries
            loaders += [loader for (mode, _), loader in zip(plan.workflow, plan.loaders, strict=False) if mode == 'val']
        sets = list(dict.fromkeys(map(name_of_scores, loaders)))  # one without a name is called ''
        if sets and not any('/' in each for each in metrics) and score.rpartition('/')[0] not in sets:
            right = ', '.join(f'{each}/{name}' if each else name for each in sets)
            yield plan.error(plan.key_of(hook, key), f'no data set has the score {score!r}', f'Write {right}.')


def _is_known(score: str, metrics: Sequence[str]) -> bool:
    """Whether a model with these metrics has the score."""
    name = score.rpartition('/')[2]
    return names_a_loss(score) or any(each in (score, name) or name.startswith(f'{each}_') for each in metrics)


def _early_stopping(plan: Plan) -> list[Any]:
    return plan.hooks_of(loaded_class('runnerkit.hooks.early_stopping:EarlyStoppingHook'))


def patience_ends(plan: Plan) -> Iterator[Finding]:
    """Early stopping, and ReduceLROnPlateau, without evaluations, or with more patience than there are."""
    evaluations, validates = plan.hooks_of(EvalHook), any(mode == 'val' for mode, _ in plan.workflow)
    waiting = [(hook, hook.patience, 1, 'the run never stops early') for hook in _early_stopping(plan)]
    waiting += [
        (hook, hook.arguments.get('patience', 10), 2, 'the learning rate never changes')
        for hook in plan.hooks_of(ScheduleHook)
        if (hook.monitor or '').startswith('val/')
    ]
    for hook, patience, more, never in waiting if plan.workflow and not validates else ():
        if not evaluations:
            also = ", or monitor 'train/loss'" if isinstance(hook, ScheduleHook) else ''
            yield plan.error(
                plan.key_of(hook, 'monitor'),
                f'nothing is evaluated, so there is no score {hook.monitor!r}: {never}',
                f"Add an evaluation (evaluation=dict(interval=1)), or a 'val' entry to the workflow{also}.",
            )
        elif len(evaluations) == 1 and (length := plan.length(evaluations[0].by_epoch)):
            count = length // evaluations[0].interval
            if isinstance(patience, int) and count < patience + more:
                way_out = f'Let patience be at most {count - more}.' if count >= more else 'Evaluate more often.'
                what = f'is {patience} evaluations, but the run has {count}: {never}'
                yield plan.warning(plan.key_of(hook, 'patience'), what, way_out)


def best_score_has_a_rule(plan: Plan) -> Iterator[Finding]:
    """A ``save_best`` of which it is unknown whether greater or less is better."""
    for hook in plan.hooks_of(EvalHook):
        best = hook.save_best
        if best in (None, 'auto') or hook._asks_dataset or hook.given_rule:
            continue
        if type(plan.model).__name__ in ('Supervised', 'Pairs') and not _is_known(best, list(metrics_of(plan.model))):
            continue  # `scores_exist` has said so
        try:
            rule_of(plan.runner.model, best, hook.greater_keys, hook.less_keys)
        except ValueError as error:
            yield plan.error(plan.key_of(hook, 'save_best'), str(error), "Write rule='greater' or rule='less'.")
