"""Checks of single hooks: whether they are ever called, and how they were meant."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from itertools import product
from typing import Any

from runnerkit.config.origin import Finding
from runnerkit.flow.preflight.plan import Plan
from runnerkit.hooks import (
    CheckpointHook,
    EvalHook,
    Hook,
    LoggerHook,
    TextLoggerHook,
)
from runnerkit.hooks.hook import FALLBACKS, POINTS, RINGS, STAGES, VAL_POINTS, overrides
from runnerkit.hooks.hook_table import CALLED, meant_points
from runnerkit.hooks.param_schedule import ScheduleHook
from runnerkit.optim.named import named_optimizers
from runnerkit.utils.lazy import loaded_class
from runnerkit.utils.user_files import is_ours

#: Methods of other libraries' callbacks whose names, put in MMCV's words, are no points, and what does the same here.
FOREIGN = {
    'before_train': 'before_run',
    'after_train': 'after_run',
    'before_fit': 'before_run',
    'after_fit': 'after_run',
    'before_val': 'around_val',
    'after_val': 'after_evaluate',
    'before_save_checkpoint': 'around_save',
    'after_load_checkpoint': 'before_resume',
    'before_step': 'after_backward',
    'on_step_end': 'after_train_iter',
    'on_save_checkpoint': 'state_dict',
    'on_load_checkpoint': 'load_state_dict',
    'on_before_optimizer_step': 'after_backward',
    'on_after_backward': 'after_backward',
}


def _points(hook: Hook) -> set[str]:
    """The points and rings at which ``hook`` does something; the generic ones stand for both modes."""
    found = {point for point in POINTS if overrides(hook, point)}
    for name in {*RINGS, *CALLED} - set(POINTS):
        method = getattr(hook, name, None)
        if callable(method) and getattr(method, '__func__', None) is not getattr(Hook, name, object):
            found.add(name)
    return found


def hooks_listen(plan: Plan) -> Iterator[Finding]:
    """Hooks without any point, and points of hooks that this run never comes to."""
    if getattr(type(plan.runner), 'call_hook', None) is None or not is_ours(type(plan.runner).__module__):
        return
    for hook in plan.hooks:
        points = _points(hook)
        if not points:
            if not any(_foreign(type(hook))):
                yield plan.warning(
                    plan.path_of(hook),
                    f'{type(hook).__name__} is never called: it overrides no point of a run',
                    f'Give it one of {", ".join(STAGES)}, or leave it out.',
                )
            continue
        silent = _never(plan, hook)
        lost = sorted(points & silent.keys())
        if points <= silent.keys() and not isinstance(hook, (CheckpointHook, EvalHook)):
            reason, way_out = silent[lost[0]]
            what = f'{type(hook).__name__} is never called: it only has {", ".join(lost)}, and {reason}'
            yield plan.warning(plan.path_of(hook), what, way_out)
        elif plan.hooks_of(EvalHook) and not is_ours(type(hook).__module__):
            # Where nothing is evaluated, it is plain that no val point is called.
            val = [point for point in lost if point in VAL_POINTS]
            if val:
                reason, way_out = silent[val[0]]
                what = f'{", ".join(f"{type(hook).__name__}.{point}" for point in val)}: never called, since {reason}'
                yield plan.warning(plan.path_of(hook), what, way_out)


def _never(plan: Plan, hook: Hook) -> dict[str, tuple[str, str]]:
    """The points at which this run never calls ``hook``: why, and the way out."""
    never, evaluations = {}, plan.hooks_of(EvalHook)
    if not plan.by_epoch:
        reason = 'an iteration runner has no epochs'
        found = reason, 'Use another point, or leave the hook out.'
        never.update({point: found for point in FALLBACKS if point.endswith('_epoch')})
    if plan.workflow and not any(mode == 'val' for mode, _ in plan.workflow):
        never.update(dict.fromkeys(VAL_POINTS, _why_no_val_point(hook, evaluations)))
    for point in VAL_POINTS:
        if any(each.calls(hook, point) for each in evaluations):
            never.pop(point, None)
    return never


def _why_no_val_point(hook: Hook, evaluations: list[EvalHook]) -> tuple[str, str]:
    """Why no val point of ``hook`` is called in a run without a ``'val'`` entry in its workflow, and the way out."""
    no_entry = "the workflow has no 'val' entry"
    if not evaluations:
        way_out = "Write evaluation=dict(interval=1), or add ('val', 1) to the workflow."
        return f'{no_entry}, and there is no evaluation', way_out
    asked = [loader for each in evaluations for loader in each.dataloaders.values() if each.asks_dataset_of(loader)]
    if asked:
        reason = f'{type(asked[0].dataset).__name__}.evaluate gets all predictions at once ({no_entry})'
        return reason, "Use after_evaluate or the ring around_val, or add ('val', 1) to the workflow."
    if not hook.hears_evaluations:
        reason = f'{type(hook).__name__}.hears_evaluations is False, as for all loggers ({no_entry})'
        return reason, 'Set hears_evaluations = True in the class, or list the hook in evaluation.hooks instead.'
    reason = f'an EvalHook that is built in Python calls the val points of only its hooks ({no_entry})'
    return reason, 'Give it the hook: EvalHook(…, hooks=[…]), or write evaluation=dict(…).'


def _foreign(hook_type: type[Hook]) -> Iterator[tuple[str, str]]:
    """Methods of ``hook_type`` that look like points but are none, and the points that they resemble."""
    for name in dir(hook_type):
        if name.startswith('_') or hasattr(Hook, name) or name in CALLED or not callable(getattr(hook_type, name)):
            continue
        # As MMCV would call it: after_train_iter for on_train_batch_end.
        ours = re.sub('^on_(.+)_(?:start|begin)$', r'before_\1', re.sub('^on_(.+)_end$', r'after_\1', name))
        ours = ours.replace('batch', 'iter').replace('validation', 'val').replace('_test', '_val')
        if name in FOREIGN or ours in FOREIGN:
            yield name, FOREIGN.get(name) or FOREIGN[ours]
        elif ours != name and ours in POINTS:
            yield name, ours
        elif name.startswith(('before_', 'after_', 'around_', 'on_')):
            yield name, next(iter(meant_points(name)), '')


def methods_are_points(plan: Plan) -> Iterator[Finding]:
    """Methods called ``before_…``, ``after_…``, ``around_…`` or ``on_…`` that are no points."""
    if not is_ours(type(plan.runner).__module__):
        return  # it may call its own points
    for hook in plan.hooks:
        if is_ours(type(hook).__module__):
            continue
        for name, meant in _foreign(type(hook)):
            hint = f'Call it {meant}' if meant else f'The points are {", ".join(STAGES)}'
            yield plan.warning(
                plan.path_of(hook),
                f'the runner never calls {type(hook).__name__}.{name}: it is not a point of a run',
                f'{hint}. If it is a helper, or you call runner.call_hook({name!r}), rename it.',
            )


def methods_take_the_runner(plan: Plan) -> Iterator[Finding]:
    """Points with other parameters than ``(self, runner)``."""
    for hook in plan.hooks:
        if is_ours(type(hook).__module__):
            continue
        for point in _points(hook) & {*POINTS, *RINGS}:
            arguments: tuple[Any, ...] = ('runner', {}) if point == 'after_evaluate' else ('runner',)
            try:
                signature = inspect.signature(getattr(hook, point))
            except (TypeError, ValueError):
                continue
            try:
                signature.bind(*arguments)
            except TypeError as error:
                called = ', '.join(('self', 'runner', 'scores')[: len(arguments) + 1])
                yield plan.error(
                    plan.path_of(hook),
                    f'{type(hook).__name__}.{point}{signature} cannot be called with ({called[6:]}): {error}',
                    f'Write def {point}({called}).',
                )


#: Hooks of which a run needs one at most, and what a second one does.
SINGLES: tuple[tuple[str, str], ...] = (
    ('runnerkit.hooks.ema:EMAHook', 'each computes its own average, and evaluation uses only one of them'),
    ('runnerkit.hooks.basic:IterTimerHook', 'each measures the times, and they are logged twice'),
    ('runnerkit.hooks.logger.text:TextLoggerHook', 'each line is written twice'),
)


def hooks_are_single(plan: Plan) -> Iterator[Finding]:
    """Two hooks that do the same, or overwrite each other."""
    for kind, what in SINGLES:
        for hook in plan.hooks_of(loaded_class(kind))[1:]:
            yield plan.warning(plan.path_of(hook), f'two {type(hook).__name__}s are registered: {what}', 'Keep one.')
    schedules = plan.hooks_of(ScheduleHook)
    quantities = {hook.key for hook in schedules}
    for key, name in product(sorted(quantities), named_optimizers(getattr(plan.runner, 'optimizer', None)) or ['']):
        alike = [hook for hook in schedules if hook.key == key and hook.optimizer in (None, name)]
        if len(alike) < 2:
            continue
        of = f' of {name}' if name else ''
        yield plan.warning(
            plan.path_of(alike[-1]),
            f'{" and ".join(type(hook).__name__ for hook in alike)} both set the {key}{of}: the last one wins',
            'Keep one.',
        )
    places: set[Any] = set()
    for hook in plan.hooks_of(CheckpointHook):
        place = (hook.out_dir, hook.by_epoch, hook.args.get('filename_tmpl'))
        if place in places:
            yield plan.warning(
                plan.path_of(hook),
                "two CheckpointHooks write to the same folder and delete each other's old files",
                'Keep one, or give each its own out_dir.',
            )
        places.add(place)


def hooks_fit(plan: Plan) -> Iterator[Finding]:
    """Hooks whose own method ``misfit`` refuses the run."""
    for hook in plan.hooks:
        misfit = getattr(hook, 'misfit', None)
        found = misfit(plan.runner) if misfit is not None else None
        if found is not None:
            what, way_out = found
            yield plan.error(plan.path_of(hook), what, f'{way_out[0].upper()}{way_out[1:]}.')


def text_log_stays(plan: Plan) -> Iterator[Finding]:
    """A list of loggers without the text log, which it replaces. A logger of the user may write a text."""
    given = plan.get('log_config', 'hooks')
    loggers = plan.hooks_of(LoggerHook)
    if given and not any(isinstance(hook, TextLoggerHook) or not is_ours(type(hook).__module__) for hook in loggers):
        yield plan.warning(
            ('log_config', 'hooks'),
            'no text log is written to the terminal or to a file: this list replaces the default one',
            "Add dict(type='TextLoggerHook').",
        )
