"""Checks of learning-rate and momentum schedules against the run's length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from runnerkit.config.origin import Finding
from runnerkit.flow.preflight.plan import Plan, amount, names
from runnerkit.hooks.param_schedule import ParamScheduleHook, ScheduleHook, read
from runnerkit.optim import schedules
from runnerkit.utils.user_files import is_ours


def steps_are_reached(plan: Plan) -> Iterator[Finding]:
    """Steps at or after the run's end, of our policies and of torch's."""
    for hook in plan.hooks_of(ScheduleHook):
        name, steps = _steps(hook)
        length = plan.length(hook.by_epoch)
        if name == 'step' and getattr(hook, 'step', None) == []:
            yield plan.warning(
                plan.key_of(hook, 'step'),
                f'is empty: the {hook.key} never changes',
                'List epochs or iterations, such as [8, 11], or leave the schedule out.',
            )
        if not length or not steps:
            continue
        late = [str(step) for step in steps if step >= length]
        if late:
            scope = 'none of its steps is' if len(late) == len(steps) else f'{names(late)} is not'
            hint = ''
            if hook.by_epoch and plan.iters and plan.epochs and max(steps) < plan.iters:
                look_like_iters = not plan.by_epoch or min(steps) >= 10 * plan.epochs
                hint = ' (with by_epoch=False they count iterations)' if look_like_iters else ''
            yield plan.warning(
                plan.key_of(hook, name),
                f'{scope} reached: the run ends after {amount(length, hook.by_epoch)}{hint}',
                f'Let {name} lie below {length}.',
            )


def _steps(hook: Any) -> tuple[str, list[int]]:
    """The argument that holds the moments of a schedule's steps, and these moments (of equal steps, the first)."""
    name, given = 'step', getattr(hook, 'step', None)
    if hook.scheduler:
        name = next((each for each in ('milestones', 'step_size') if each in hook.arguments), '')
        given = hook.arguments.get(name)
    elif not isinstance(hook, schedules.Step):
        given = None
    steps = [given] if isinstance(given, int) else given
    is_list = isinstance(steps, Sequence) and all(isinstance(step, int) for step in steps)
    return name, list(steps) if is_list and steps is not None else []


def warmups_end(plan: Plan) -> Iterator[Finding]:
    """Warm-ups that are longer than the run."""
    for hook in plan.hooks_of(ParamScheduleHook):
        if hook.warmup is None:
            continue
        warmup = hook.warmup_epochs if hook.warmup_by_epoch else hook.warmup_iters
        if isinstance(warmup, int):
            meaning = f'the warm-up takes {amount(warmup, hook.warmup_by_epoch)}'
            never = f'the {hook.key} never reaches its regular value'
            yield from plan.too_many(hook, 'warmup_iters', warmup, hook.warmup_by_epoch, meaning, never)


def length_is_known(plan: Plan) -> Iterator[Finding]:
    """Policies that need the run's length, in a unit in which the run has none."""
    for hook in plan.hooks_of(ScheduleHook):
        if not _asks_for_total(hook):
            continue
        known: Any = plan.length(hook.by_epoch)
        if hook.by_epoch and not plan.by_epoch:
            known = plan.runner.max_epochs  # an iteration runner does not convert its iterations
        if known is None and plan.workflow:
            unit, other = ('epochs', False) if hook.by_epoch else ('iters', True)
            yield plan.error(
                plan.key_of(hook, 'by_epoch'),
                f'{type(hook).__name__} counts {unit}, but the runner does not say how many the run has',
                f'Set max_{unit} of the runner, or by_epoch={other} here.',
            )


def _asks_for_total(hook: Any) -> bool:
    """Whether the formula of ``hook`` uses the run's length. A ``get_lr`` of the user's own may or may not: no."""
    if hook.scheduler:
        from runnerkit.hooks.torch_scheduler import missing_length

        return missing_length(hook.scheduler, hook.arguments) is not None
    if isinstance(hook, schedules.OneCycle):
        return not getattr(hook, 'total_steps', None)
    get = getattr(type(hook), f'get_{hook.key}', None)
    return hook.needs_total and is_ours(getattr(get, '__module__', ''))


def schedule_lasts(plan: Plan) -> Iterator[Finding]:
    """Schedules that would end in an error before the run ends."""
    hooks: list[Any] = plan.hooks_of(ScheduleHook)
    for hook in hooks:
        length = plan.length(hook.by_epoch)
        if not length:
            continue
        if issubclass(type(hook), schedules.CosineRestart):
            whole, starts = hook.cumulative_periods[-1], hook.cumulative_periods[:-1]
            if whole < length:
                yield plan.error(
                    plan.key_of(hook, 'periods'),
                    f'the periods add up to {whole}, but the run has {amount(length, hook.by_epoch)}: it would fail '
                    'after the last period',
                    f'Let periods add up to {length}.',
                )
            elif starts and starts[-1] >= length:
                yield plan.warning(
                    plan.key_of(hook, 'periods'),
                    f'the last period would begin at {starts[-1]}, but the run has {amount(length, hook.by_epoch)}',
                    f'Let periods add up to {length}.',
                )
        if issubclass(type(hook), schedules.Cyclic) and hook.cyclic_times > length:
            yield plan.error(
                plan.key_of(hook, 'cyclic_times'),
                f'{hook.cyclic_times} cycles do not fit into {amount(length, False)}',
                f'Let cyclic_times be at most {length}.',
            )
        total = getattr(hook, 'total_steps', None)
        if hook.scheduler == 'OneCycleLR':
            of = {'epochs': 0, 'steps_per_epoch': 0, **hook.arguments}
            total = of.get('total_steps') or of['epochs'] * of['steps_per_epoch'] or None
        if total is not None and total < length:
            yield plan.error(
                plan.key_of(hook, 'total_steps'),
                f'the cycle has {total} steps, but the run has {amount(length, hook.by_epoch)}: it would fail after '
                'the last step',
                f'Let total_steps be {length}.',
            )


#: The argument with the length of a torch scheduler, and what happens in a shorter run, and in a longer one.
_TORCH_LENGTHS: dict[str, tuple[str, str, str]] = {
    'CosineAnnealingLR': ('T_max', 'eta_min is never reached', 'the learning rate rises again'),
    'LinearLR': ('total_iters', 'end_factor is never reached', ''),
    'ConstantLR': ('total_iters', 'the learning rate never reaches its regular value', ''),
    'PolynomialLR': ('total_iters', 'the learning rate never reaches its end', 'the learning rate is 0 at the end'),
    'OneCycleLR': ('total_steps', 'the cycle is never completed', ''),
    'CosineAnnealingWarmRestarts': ('T_0', 'the first period is never completed', ''),
}


def torch_lengths_fit(plan: Plan) -> Iterator[Finding]:
    """Schedulers of torch whose own length is not that of the run."""
    for hook in plan.hooks_of(ScheduleHook):
        name, short, long = _TORCH_LENGTHS.get(hook.scheduler, ('', '', ''))
        own, length = hook.arguments.get(name), plan.length(hook.by_epoch)
        if not isinstance(own, int) or not length or own == length:
            continue
        what = short if own > length else long
        if what:
            yield plan.warning(
                plan.key_of(hook, name),
                f'{name}={own}, but the run has {amount(length, hook.by_epoch)}: {what}',
                f'Write {name}={length}.' + (' The unit is that of by_epoch.' if 4 * own < length else ''),
            )


def schedule_moves(plan: Plan) -> Iterator[Finding]:
    """Schedules by epoch in a run of one epoch."""
    for hook in plan.hooks_of(ScheduleHook):
        if not hook.by_epoch or plan.epochs != 1 or not is_ours(type(hook).__module__):
            continue
        moves_within = getattr(hook, 'warmup', None) is not None or hook.monitor is not None
        is_constant = isinstance(hook, schedules.Step) or type(hook).__name__ == 'FixedLrUpdaterHook'
        if moves_within or is_constant or _steps(hook)[1]:  # for `steps_are_reached`
            continue
        what = hook.scheduler or type(hook).__name__
        yield plan.warning(
            plan.key_of(hook, 'by_epoch'),
            f'{what} counts epochs, but the run has only one: the {hook.key} never changes',
            'Set by_epoch=False.',
        )


def schedule_falls(plan: Plan) -> Iterator[Finding]:
    """Learning rates that begin below their minimum, and steps that raise them."""
    rates = [float(group['lr']) for one in plan.optimizers.values() for group in one.param_groups if 'lr' in group]
    for hook in plan.hooks_of(ParamScheduleHook):
        low, gamma = getattr(hook, 'minimum', None), getattr(hook, 'gamma', None)
        if hook.key != 'lr' or not rates:
            continue
        if isinstance(low, (int, float)) and low > max(rates):
            yield plan.warning(
                plan.key_of(hook, 'min_lr'),
                f'min_lr={low} is above the learning rate {max(rates)}: the schedule raises the rate',
                'Let min_lr be smaller than optimizer.lr.',
            )
        path = plan.key_of(hook, 'gamma')
        if not isinstance(hook, schedules.Step | schedules.Exp) or not isinstance(gamma, (int, float)):
            continue
        if gamma <= 0:
            what = f'gamma={gamma} makes the learning rate {"0" if gamma == 0 else "negative"}'
            yield plan.error(path, what, 'Give a number between 0 and 1, such as 0.1.')
        if gamma > 1:
            what = f'gamma={gamma} raises the learning rate with each step'
            yield plan.warning(path, what, f'Write {1 / gamma:.4g} to lower it.')


def quantity_exists(plan: Plan) -> Iterator[Finding]:
    """Schedules of a momentum that the optimizer does not have, or of an optimizer that does not exist."""
    for hook in plan.hooks_of(ScheduleHook):
        if not plan.optimizers:
            yield plan.error(
                plan.path_of(hook),
                f'{type(hook).__name__} needs an optimizer, but the runner has none',
                'Give the runner one, or leave the schedule out.',
            )
        for name, optimizer in plan.optimizers.items():
            if any(read(group, hook.key) is None for group in optimizer.param_groups):
                yield plan.error(
                    plan.path_of(hook),
                    f'{type(optimizer).__name__}{f" ({name})" if name else ""} has no {hook.key} to schedule',
                    'Use an optimizer that has one, such as SGD or Adam, or leave the schedule out.',
                )
