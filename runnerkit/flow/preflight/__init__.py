"""What a run would do that its user cannot mean, found before the first batch.

A check is a function from a `Plan` to findings: each public function of this folder's modules, but for ``plan``.
`CONFIG_CHECKS` look at a config alone; `RUN_CHECKS` also look at the built runner, its hooks and its loaders. To check
a runner that was made in Python::

    from runnerkit.flow.preflight import Plan, preflight

    for finding in preflight(Plan(runner=runner, loaders=[loader], workflow=[('train', 1)])):
        print(finding)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from itertools import chain
from types import ModuleType
from typing import Any

from runnerkit.config.origin import Finding, PreflightError, listed, without_errors
from runnerkit.flow.context import Context
from runnerkit.flow.preflight import evaluation, hooks, keys, lengths, schedules, updates, wrapping
from runnerkit.flow.preflight.plan import Plan

__all__ = ['CHECKS', 'CONFIG_CHECKS', 'RUN_CHECKS', 'Finding', 'Plan', 'PreflightError', 'find', 'preflight']

Check = Callable[[Plan], Iterable[Finding]]


def _checks_in(*modules: ModuleType) -> tuple[Check, ...]:
    return tuple(
        function
        for module in modules
        for name, function in vars(module).items()
        if inspect.isfunction(function) and function.__module__ == module.__name__ and not name.startswith('_')
    )


#: Checks that need nothing but the config (and the command line's flags).
CONFIG_CHECKS = _checks_in(keys, wrapping)

#: Checks that need the runner.
RUN_CHECKS = _checks_in(updates, evaluation, lengths, schedules, hooks)

CHECKS = (*CONFIG_CHECKS, *RUN_CHECKS)


#: Top-level keys that change how a run computes, not what it computes.
SWITCHES = ('channels_last', 'cudnn_benchmark', 'tf32', 'prefetch', 'num_threads', 'compile', 'amp', 'fp16')


def find(plan: Plan) -> list[Finding]:
    """All findings, errors first; without a runner in ``plan``, those of its config."""
    checks = CONFIG_CHECKS if plan.runner is None else CHECKS
    found = dict.fromkeys(chain.from_iterable(check(plan) for check in checks))
    return sorted(found, key=lambda each: each.level != 'error')


def check_switches(cfg: Any) -> None:
    """Refuse wrong values of `SWITCHES`, for commands that do not train."""
    plan = Plan(cfg=cfg)
    without_errors(each for each in keys.values(plan) if each.key.partition('.')[0] in SWITCHES)


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
