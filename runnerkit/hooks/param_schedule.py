"""The base of the learning-rate and momentum hooks: when values are computed and set in the parameter groups."""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import Tensor

from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.optim.named import named_optimizers
from runnerkit.optim.schedules import Policy, check_warmup, warmup_factor
from runnerkit.utils.exceptions import WrongValue
from runnerkit.utils.numbers import check_finite
from runnerkit.utils.signatures import bind_arguments
from runnerkit.utils.suggest import did_you_mean

if TYPE_CHECKING:
    from torch.optim import Optimizer

#: One value per parameter group; with several optimizers, such a sequence for each name.
Values: TypeAlias = 'Sequence[Any] | dict[str, Sequence[Any]]'
Group: TypeAlias = 'dict[str, Any]'


class ScheduleHook(Hook):
    """The base of all schedules, also of torch's."""

    needs_training = True

    #: The quantity's key in a parameter group; the group keeps the initial value under ``initial_<key>``.
    key: str = 'lr'
    #: Whether the schedule counts epochs or iterations.
    by_epoch: bool = True
    #: The name of the optimizer that it is for; None for all.
    optimizer: str | None = None
    #: The class and arguments of a scheduler of torch, and the score that it monitors.
    scheduler: str = ''
    arguments: Mapping[str, Any] = {}
    monitor: str | None = None


class ParamScheduleHook(Policy, ScheduleHook):
    """Sets one quantity of every parameter group as a function of the run's position.

    The value depends only on the position and the initial value. The initial value is stored in the group itself, so
    it is part of the optimizer's state, and a resumed run follows the same curve.

    Args:
        by_epoch: Whether the schedule counts epochs or iterations.
        warmup: 'constant', 'linear' or 'exp'; None for no warm-up.
        warmup_iters: Length of the warm-up in iterations, or in epochs with ``warmup_by_epoch``; at least 1 if there
            is one.
        warmup_ratio: Where the warm-up starts, as a share of the regular value, in (0, 1].
        warmup_by_epoch: Whether ``warmup_iters`` counts epochs.
        optimizer: The name of the one of several optimizers that it is for; None for all.

    Raises:
        ValueError: If a warm-up setting is out of its range, or ``by_epoch`` is set for a policy that counts
            iterations only.
    """

    #: The initial value of every group; with several optimizers, a list for each name.
    base: Values = ()
    #: The values without warm-up, in the same arrangement.
    regular: Values = ()
    #: What a warm-up does with a regular value and its factor.
    warm: Callable[[float, float], float] = staticmethod(operator.mul)

    # True if a by-epoch schedule runs in an iteration runner, which has no epoch points
    _epochs_unannounced = False
    _entered_epoch: int | None = None

    def __init__(
        self,
        by_epoch: bool = True,
        warmup: str | None = None,
        warmup_iters: int = 0,
        warmup_ratio: float = 0.1,
        warmup_by_epoch: bool = False,
        optimizer: str | None = None,
    ) -> None:
        if by_epoch and self.by_iteration_only:
            raise WrongValue(
                f'{type(self).__name__} counts iterations and supports only by_epoch=False; leave by_epoch out'
            )
        if warmup is not None:
            check_warmup(warmup, warmup_iters, warmup_ratio)
        self.by_epoch = by_epoch
        self.optimizer = optimizer
        self.warmup = warmup
        # An integer, but by epoch it is None until the loader's length is known.
        self.warmup_iters: Any = None if warmup_by_epoch else warmup_iters
        self.warmup_ratio = warmup_ratio
        self.warmup_by_epoch = warmup_by_epoch
        self.warmup_epochs = warmup_iters if warmup_by_epoch else None

    def before_run(self, runner: RunnerView) -> None:
        """Check the numbers, record every group's initial value, and find out whether the runner has epoch points."""
        self._check_numbers()
        self._epochs_unannounced = self.by_epoch and not getattr(runner, 'by_epoch', True)
        self.base = initial_values(only(self.optimizer, runner.optimizer), self.key)

    def _check_numbers(self) -> None:
        is_ours = type(self).__module__.startswith('runnerkit.')  # others may begin with an infinite minimum
        check_finite(type(self).__name__, vars(self), lambda path: not is_ours)

    def before_train_epoch(self, runner: RunnerView) -> None:
        """Set the epoch's values."""
        if self.warmup_iters is None:
            self._resolve_warmup(runner)
        if self.by_epoch:
            self._enter_epoch(runner)

    def before_train_iter(self, runner: RunnerView) -> None:
        """Set the iteration's values; nothing to do by epoch, unless there is a warm-up."""
        if self.by_epoch:
            if self._epochs_unannounced and runner.epoch != self._entered_epoch:
                self._enter_epoch(runner)
            if self.warmup is None:
                return
        warmup_iters = 0
        if self.warmup is not None:
            warmup_iters = self._resolve_warmup(runner) if self.warmup_iters is None else self.warmup_iters
        if self.by_epoch and runner.iter > warmup_iters:
            return
        key = self.key  # MMCV names the methods after it, and users override them
        if not self.by_epoch:
            self.regular = getattr(self, f'get_regular_{key}')(runner)
        is_warming_up = runner.iter < warmup_iters
        values = getattr(self, f'get_warmup_{key}')(runner.iter) if is_warming_up else self.regular
        getattr(self, f'_set_{key}')(runner, values)

    def _enter_epoch(self, runner: RunnerView) -> None:
        self._entered_epoch = runner.epoch
        self.regular = getattr(self, f'get_regular_{self.key}')(runner)
        getattr(self, f'_set_{self.key}')(runner, self.regular)

    def _resolve_warmup(self, runner: RunnerView) -> int:
        """Convert the length of a warm-up by epoch to iterations, which needs the loader's length."""
        self.warmup_iters = (self.warmup_epochs or 0) * len(runner.data_loader)
        return self.warmup_iters

    def _regular_values(self, runner: RunnerView) -> Values:
        """Return every group's value without warm-up."""
        get, base = partial(getattr(self, f'get_{self.key}'), runner), self.base
        if isinstance(base, dict):
            return {name: list(map(get, part)) for name, part in base.items()}
        return list(map(get, base))

    def _warmup_values(self, cur_iters: int) -> Values:
        """Return every group's value in iteration ``cur_iters`` of the warm-up."""
        factor = repeat(warmup_factor(self.warmup, cur_iters, self.warmup_iters, self.warmup_ratio))
        values = self.regular
        if isinstance(values, dict):
            return {name: list(map(self.warm, part, factor)) for name, part in values.items()}
        return list(map(self.warm, values, factor))

    def _position(self, runner: RunnerView) -> tuple[int, Any]:
        """Return how many epochs or iterations are done, and how many the run has."""
        if self.by_epoch:
            progress, total = runner.epoch, runner.max_epochs if self.needs_total else None
        else:
            progress, total = runner.iter, runner.max_iters if self.needs_total else None
        if total is None and self.needs_total:
            unit, other = ('epochs', 'False') if self.by_epoch else ('iters', 'True')
            raise ValueError(
                f'{type(self).__name__} counts {unit} and needs to know how many the run has, but max_{unit} is None; '
                f'set max_{unit} of the runner, or by_epoch={other} in the schedule'
            )
        return progress, total

    def _set_groups(self, runner: RunnerView, values: Values) -> None:
        # Called in every iteration, usually with one optimizer and plain numbers.
        key, optimizer = self.key, runner.optimizer
        parts: Any = [(optimizer, values)]
        if isinstance(optimizer, dict):
            parts = [(optimizer[name], part) for name, part in values.items()]  # type: ignore[union-attr]
        for one, part in parts:
            # zip with a keyword takes longer than everything else here.
            for group, value in zip(one.param_groups, part):  # noqa: B905
                if key in group and type(group[key]) is float:
                    group[key] = value
                else:
                    write(group, key, value)


def read(group: Group, key: str) -> float | None:
    """Return the quantity ``key`` of a parameter group, None if it has none. Adam's momentum is its first beta."""
    if key in group:
        return float(group[key])
    return float(group['betas'][0]) if key == 'momentum' and 'betas' in group else None


def write(group: Group, key: str, value: float) -> None:
    """Set what `read` returns. A tensor is filled in place, because compiled optimizers keep a reference to it."""
    if key == 'momentum' and key not in group:
        group['betas'] = (value, *group['betas'][1:])
    elif isinstance(group[key], Tensor):
        group[key].fill_(value)
    else:
        group[key] = value


def copied(group: Group) -> Group:
    """Return a new parameter group with the same parameters and copied values."""
    return {key: value.clone() if isinstance(value, Tensor) else value for key, value in group.items()}


def only(name: str | None, optimizer: Any) -> Any:
    """The optimizer of that name, in a dict; all of them if ``name`` is None."""
    if name is None:
        return optimizer
    named = named_optimizers(optimizer)
    if not name or name not in named:
        names = [each for each in named if each]
        hint = did_you_mean(str(name), names) or f'there are {names or "no named ones"}'
        raise KeyError(f'a schedule is for the optimizer {name!r}, and there is none of that name; {hint}')
    return {name: named[name]}


def per_optimizer(optimizer: Any, function: Callable[[str, Optimizer], Any]) -> Any:
    """Call ``function(name, optimizer)``; for a dict of optimizers, return a dict of the results."""
    if optimizer is None:
        raise ValueError(
            'a schedule needs an optimizer, but the runner has none; give it one, or leave the schedule out'
        )
    found = {name: function(name or type(one).__name__, one) for name, one in named_optimizers(optimizer).items()}
    return found.get('', found)


def initial_values(optimizer: Any, key: str) -> Any:
    """Return every group's initial value, and store it in the group unless a resumed run has stored it already."""

    def initial(group: Group) -> float:
        value = read(group, key)
        if value is None:
            wanted = 'momentum or betas' if key == 'momentum' else key
            raise ValueError(
                f'a schedule of the {key} needs an optimizer with {wanted}, but this one has '
                f'{", ".join(sorted(group.keys() - {"params"}))}; use one such as SGD or Adam, or leave it out'
            )
        return group.setdefault(f'initial_{key}', value)

    return per_optimizer(optimizer, lambda _, one: list(map(initial, one.param_groups)))


def format_param(name: str, optim: Optimizer, param: Any) -> list[Any] | tuple[Any, ...]:
    """Return one value per parameter group of ``optim``, from any form that a config may use.

    Args:
        name: Name of the optimizer, its key in a dict.
        optim: The optimizer.
        param: A number for all groups, a list with one per group, or a dict of either by optimizer.

    Raises:
        ValueError: If a list does not have one value per group.
        KeyError: If a dict does not have the optimizer's name.
    """
    if isinstance(param, dict):
        if name not in param:
            raise KeyError(f'{name} has no value among those for {", ".join(param)}: give one for every optimizer')
        param = param[name]
    if isinstance(param, (int, float)):
        return [param] * len(optim.param_groups)
    if len(param) != len(optim.param_groups):
        raise ValueError(
            f'{name} has {len(optim.param_groups)} parameter groups, but {len(param)} values are given: {param}'
        )
    return param


def check_per_group(name: str, value: Any) -> Any:
    """Return ``value`` if it has one of the forms that `format_param` takes."""
    if isinstance(value, bool) or not isinstance(value, (int, float, list, tuple, dict)):
        raise ValueError(
            f'{name} is a number, a list with one per parameter group, or a dict by optimizer, got {value!r}'
        )
    return value


def alias(name: str) -> Any:
    """Return a property that is another name for the attribute ``name``."""

    def write(self: Any, value: Any) -> None:
        setattr(self, name, value)

    return property(operator.attrgetter(name), write)


def make_hook(base: type[ParamScheduleHook], policy: type[Policy], text: str, **defaults: Any) -> Any:
    """Make and register the hook of a policy; its name is the policy's followed by that of ``base``.

    It takes the arguments of the policy, whose ``minimum`` is ``min_lr`` or ``min_momentum`` here, and those of
    ``base`` as keywords.
    """
    rename = partial(re.sub, r'\bminimum', f'min_{base.key}')
    own = inspect.signature(policy).parameters
    first = [name for name in defaults if name not in own]
    kind, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    parameters = [
        *(inspect.Parameter(name, kind, default=defaults[name], annotation='bool') for name in first),
        *(each.replace(name=rename(name), default=defaults.get(name, each.default)) for name, each in own.items()),
    ]
    signature = inspect.Signature(
        [inspect.Parameter('self', kind), *parameters, inspect.Parameter('kwargs', inspect.Parameter.VAR_KEYWORD)],
        return_annotation=empty,
    )

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        values = [*bind_arguments(self, signature, args, kwargs).values()]
        shared = values.pop() | dict(zip(first, values, strict=False))
        policy.__init__(self, *values[len(first) :])
        base.__init__(self, **shared)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    arguments = [inspect.cleandoc(each.__doc__ or '').partition('\nArgs:')[2] for each in policy.__mro__[:-2]]
    lines = [rename(each.partition('\n\n')[0]) for each in arguments if each]
    name = policy.__name__ + base.__name__
    body = {
        '__init__': __init__,
        '__doc__': text + ('\n\nArgs:' + ''.join(lines) if lines else ''),
        '__module__': base.__module__,
    }
    return HOOKS.register_module()(type(name, (base, policy), body))
