"""What a run would do that its user cannot mean, found before the first batch.

A check is a function from a `Plan` to findings: each public function of this folder's modules, but for ``plan``. Those
in `OF_CONFIG` look at a config alone; those in `OF_RUN` also look at the built runner, its hooks and its loaders. To
check a runner that was made in Python::

    from runnerkit.flow.preflight import Plan, preflight

    for finding in preflight(Plan(runner=runner, loaders=[loader], workflow=[('train', 1)])):
        print(finding)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from importlib import import_module
from itertools import chain
from typing import Any

from runnerkit.config.origin import Finding, PreflightError, listed, without_errors
from runnerkit.flow.context import Context
from runnerkit.flow.preflight.plan import Plan, parts_of_optimizer
from runnerkit.hooks import EvalHook
from runnerkit.hooks.param_schedule import ScheduleHook
from runnerkit.utils.lazy import loaded_class

__all__ = ['Finding', 'Plan', 'PreflightError', 'checks', 'find', 'preflight']

Check = Callable[[Plan], Iterable[Finding]]

#: The modules of checks that need nothing but the config (and the command line's flags).
OF_CONFIG = ('keys', 'wrapping')

#: The modules of checks that need the runner.
OF_RUN = ('updates', 'evaluation', 'lengths', 'schedules', 'hooks', 'rare', 'batch')

#: The keys that `runnerkit.flow.preflight.wrapping` checks.
_WRAPPING = ('model_wrapper', 'dist_params', 'sync_batchnorm', 'find_unused_parameters', 'broadcast_buffers')

#: The hooks that `runnerkit.flow.preflight.rare` checks.
_RARE_HOOKS = (
    'runnerkit.hooks.capture:CaptureHook',
    'runnerkit.hooks.ema:EMAHook',
    'runnerkit.hooks.freeze:FreezeHook',
)

#: What a run must have for the checks of a module, which is imported only then; those of others concern each run.
_CONCERNS: dict[str, Callable[[Plan], Any]] = {
    'wrapping': lambda plan: any(plan.get(key) is not None for key in _WRAPPING),
    'schedules': lambda plan: plan.hooks_of(ScheduleHook),
    'batch': lambda plan: (
        plan.cfg is not None and (plan.hooks_of(EvalHook) or any(mode == 'val' for mode, _ in plan.workflow))
    ),
    'rare': lambda plan: (
        any(map(loaded_class, _RARE_HOOKS))
        or any(len(optimizer.param_groups) > 1 for optimizer in plan.optimizers.values())
        or any('paramwise_cfg' in config for _, _, config in parts_of_optimizer(plan))
    ),
}


def checks(*modules: str) -> tuple[Check, ...]:
    """The checks in modules of this folder."""
    found = (import_module(f'{__name__}.{module}') for module in modules)
    return tuple(
        function
        for module in found
        for name, function in vars(module).items()
        if inspect.isfunction(function) and function.__module__ == module.__name__ and not name.startswith('_')
    )


#: Top-level keys that change how a run computes, not what it computes.
SWITCHES = ('channels_last', 'cudnn_benchmark', 'tf32', 'prefetch', 'num_threads', 'compile', 'amp', 'fp16')


def find(plan: Plan) -> list[Finding]:
    """All findings, errors first; without a runner in ``plan``, those of its config."""
    modules = OF_CONFIG if plan.runner is None else (*OF_CONFIG, *OF_RUN)
    concerned = [module for module in modules if module not in _CONCERNS or _CONCERNS[module](plan)]
    found = dict.fromkeys(chain.from_iterable(check(plan) for check in checks(*concerned)))
    return sorted(found, key=lambda each: each.level != 'error')


def check_switches(cfg: Any) -> None:
    """Refuse wrong values of `SWITCHES`, for commands that do not train."""
    from runnerkit.flow.preflight.keys import values

    plan = Plan(cfg=cfg)
    without_errors(each for each in values(plan) if each.key.partition('.')[0] in SWITCHES)


def is_complete(plan: Plan, checkpoint: str) -> list[Finding]:
    """The warning for a run that was resumed from ``checkpoint`` and has nothing left to train; none for other runs."""
    runner = plan.runner
    for name, unit, done in (
        ('max_epochs', 'epochs', runner.completed_epochs),
        ('max_iters', 'iterations', runner.completed_iters),
    ):
        limit = getattr(runner, name)
        if limit is not None and done >= limit > 0:
            what = f'nothing is left to train: {checkpoint} has completed all {limit} {unit}'
            way_out = (
                f'To train longer: --cfg-options runner.{name}={2 * limit}. To start over: leave out '
                '--auto-resume, or give another --work-dir.'
            )
            return [plan.warning(('runner', name), what, way_out)]
    return []


def show_findings(context: Context, when: str) -> None:
    """Log the warnings of ``context`` together; nothing if there are none."""
    if context.findings:
        count = f'{len(context.findings)} warning{"" if len(context.findings) == 1 else "s"}'
        context.logger.warning('%s: %s\n%s', when, count, listed(context.findings))


def preflight(plan: Plan) -> list[Finding]:
    """The warnings about a run that is about to start.

    Args:
        plan: the run: its config, or its runner with loaders and workflow, or both.

    Raises:
        PreflightError: it cannot do what the config says; the error names all reasons.
    """
    return without_errors(find(plan))
