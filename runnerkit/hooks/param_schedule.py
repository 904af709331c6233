"""The engine under learning-rate and momentum hooks, which walks parameter groups and sets what a policy says."""

from __future__ import annotations

import copy
import logging
import operator
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.hooks.schedule_settings import check_warmup
from runnerkit.optim.schedules import warmup_factor
from runnerkit.optim.torch_schedules import find_scheduler, scheduler_names
from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.suggest import did_you_mean

if TYPE_CHECKING:
    from torch.optim import Optimizer

#: One value per parameter group; of several optimizers, such a list under each one's name.
Values: TypeAlias = 'list[Any] | dict[str, list[Any]]'
Group: TypeAlias = 'dict[str, Any]'


class ParamScheduleHook(Hook):
    """Sets one quantity of every parameter group as a function of the run's position.

    The value of an epoch or iteration depends on nothing but the position and the initial value, which is recorded in
    the group itself and so travels with the optimizer's state: a resumed run follows the same curve.

    Args:
        by_epoch: Whether the schedule counts epochs or iterations.
        warmup: 'constant', 'linear' or 'exp'; None for no warm-up.
        warmup_iters: Length of the warm-up in iterations, or in epochs with ``warmup_by_epoch``; at least 1 if there
            is one.
        warmup_ratio: Where the warm-up starts, as a share of the regular value, in (0, 1].
        warmup_by_epoch: Whether ``warmup_iters`` counts epochs.

    Raises:
        ValueError: If a warm-up setting is out of its range.
    """

    #: The key of the quantity in a group, and the one under which a group keeps its initial value.
    key: str
    initial_key: str

    # True where a by-epoch schedule runs in an iteration runner, which announces no epochs
    _epochs_unannounced = False
    _entered_epoch: int | None = None

    def __init__(
        self,
        by_epoch: bool = True,
        warmup: str | None = None,
        warmup_iters: int = 0,
        warmup_ratio: float = 0.1,
        warmup_by_epoch: bool = False,
    ) -> None:
        if warmup is not None:
            check_warmup(warmup, warmup_iters, warmup_ratio)
        self.by_epoch = by_epoch
        self.warmup = warmup
        # An integer, but by epoch it is None until the loader's length is known.
        self.warmup_iters: Any = None if warmup_by_epoch else warmup_iters
        self.warmup_ratio = warmup_ratio
        self.warmup_by_epoch = warmup_by_epoch
        self.warmup_epochs = warmup_iters if warmup_by_epoch else None
        self.base: Values = []
        self.regular: Values = []

    #: The names of three methods, MMCV's, which users override: one gives every group's values without warm-up (of the
    #: runner), one those in the warm-up's n-th iteration (of n), one sets them (of the runner and the values).
    _get_regular: str
    _get_warmup: str
    _set_values: str

    def _read(self, group: Group) -> float:
        """The quantity's value in ``group``."""
        raise NotImplementedError

    def _write(self, group: Group, value: float) -> None:
        """Set the quantity's value in ``group``."""
        raise NotImplementedError

    def _write_groups(self, runner: RunnerView, values: Values) -> None:
        # This is called in every iteration, mostly with one optimizer, and for plain numbers.
        key = self.key
        groups = getattr(runner.optimizer, 'param_groups', None)
        # To tell zip to be strict, or not to be, takes longer than all the rest.
        pairs = pair(groups_of(runner.optimizer), values) if groups is None else zip(groups, values)  # noqa: B905
        for group, value in pairs:
            if key in group and type(group[key]) is float:
                group[key] = value
            else:
                self._write(group, value)

    def before_run(self, runner: RunnerView) -> None:
        """Record the initial values, unless the groups know them already from a run that is resumed."""
        self._epochs_unannounced = self.by_epoch and not getattr(runner, 'by_epoch', True)
        self.base = each(groups_of(runner.optimizer), self._initial)

    def _initial(self, group: Group) -> float:
        return group.setdefault(self.initial_key, self._read(group))

    def before_train_epoch(self, runner: RunnerView) -> None:
        """Set the epoch's values."""
        if self.warmup_iters is None:
            self._resolve_warmup(runner)
        if self.by_epoch:
            self._enter_epoch(runner)

    def before_train_iter(self, runner: RunnerView) -> None:
        """Set the iteration's values; by epoch and without a warm-up going on, there is nothing to do."""
        if self.by_epoch:
            if self._epochs_unannounced and runner.epoch != self._entered_epoch:
                self._enter_epoch(runner)
            if self.warmup is None:
                return
        else:
            self.regular = getattr(self, self._get_regular)(runner)
            if self.warmup is None:
                getattr(self, self._set_values)(runner, self.regular)
                return
        cur_iter = runner.iter
        warmup_iters = self._resolve_warmup(runner)
        if cur_iter < warmup_iters:
            getattr(self, self._set_values)(runner, getattr(self, self._get_warmup)(cur_iter))
        elif cur_iter == warmup_iters or not self.by_epoch:
            getattr(self, self._set_values)(runner, self.regular)

    def _enter_epoch(self, runner: RunnerView) -> None:
        self._entered_epoch = runner.epoch
        self.regular = getattr(self, self._get_regular)(runner)
        getattr(self, self._set_values)(runner, self.regular)

    def _resolve_warmup(self, runner: RunnerView) -> int:
        """The warm-up's length in iterations, which by epoch is known only when there is a loader."""
        if self.warmup_iters is None:
            self.warmup_iters = (self.warmup_epochs or 0) * len(runner.data_loader)
        return self.warmup_iters

    def warmup_factor(self, cur_iters: int) -> float:
        """The warm-up's factor, in (0, 1], in iteration ``cur_iters``; 1 where there is no warm-up."""
        if self.warmup is None:
            return 1.0
        return warmup_factor(self.warmup, cur_iters, self.warmup_iters, self.warmup_ratio)

    def progress(self, runner: RunnerView) -> int:
        """How many epochs or iterations are done."""
        return runner.epoch if self.by_epoch else runner.iter

    def total(self, runner: RunnerView) -> int:
        """How many epochs or iterations the run has.

        Raises:
            ValueError: If the run has no such limit.
        """
        total = runner.max_epochs if self.by_epoch else runner.max_iters
        if total is None:
            unit, other = ('epochs', 'False') if self.by_epoch else ('iters', 'True')
            raise ValueError(
                f'{type(self).__name__} counts {unit} and needs to know how many the run has, but max_{unit} is None; '
                f'set max_{unit} of the runner, or by_epoch={other} in the schedule'
            )
        return total


def groups_of(optimizer: Optimizer | dict[str, Optimizer] | None) -> Values:
    """The parameter groups of an optimizer, or of each one of a dict under its name.

    Raises:
        ValueError: If there is no optimizer.
    """
    if isinstance(optimizer, dict):
        return {name: one.param_groups for name, one in optimizer.items()}
    if optimizer is None:
        raise ValueError(
            'a schedule needs an optimizer, but the runner has none; give it one, or leave the schedule out'
        )
    return optimizer.param_groups


def per_optimizer(optimizer: Any, function: Callable[[str, Optimizer], Any]) -> Any:
    """``function`` of the name and the optimizer; of a dict of optimizers, a dict of what it gives for each."""
    if isinstance(optimizer, dict):
        return {name: function(name, one) for name, one in optimizer.items()}
    return function(type(optimizer).__name__, optimizer)


def each(values: Values, function: Callable[[Any], Any]) -> Values:
    """``function`` of every item, in the same arrangement."""
    if isinstance(values, dict):
        return {name: list(map(function, part)) for name, part in values.items()}
    return list(map(function, values))


def computed(function: Callable[[RunnerView, Any], float], runner: RunnerView, values: Values) -> Values:
    """``function`` of the runner and every item, in the same arrangement: `each` for every iteration."""
    if isinstance(values, dict):
        return {name: [function(runner, value) for value in part] for name, part in values.items()}
    made = []  # a comprehension would be one more call
    for value in values:
        made.append(function(runner, value))  # noqa: PERF401
    return made


def pair(left: Values, right: Values) -> Iterable[tuple[Any, Any]]:
    """The items of ``left``, each with its counterpart in ``right``."""
    if isinstance(left, dict):
        parts = right if isinstance(right, dict) else {}
        return [both for name, part in left.items() for both in zip(part, parts[name], strict=False)]
    return zip(left, right, strict=False)


def alias(name: str) -> Any:
    """An attribute that is another name for the attribute ``name``."""

    def write(self: Any, value: Any) -> None:
        setattr(self, name, value)

    return property(operator.attrgetter(name), write)


def assign(group: Group, key: str, value: float) -> None:
    """Set a group's entry; one that is a tensor, as compiled optimizers want it, keeps its identity."""
    current = group[key]
    if type(current) is not float and isinstance(current, torch.Tensor):  # the second asks a metaclass
        current.fill_(value)
    else:
        group[key] = value


def build_policy_hook(config: Any, suffix: str, torch_hook: type[Hook] | None = None) -> Hook:
    """The hook that a config names by its policy; ``config`` itself is not changed.

    Args:
        config: An already built hook; a dict with a ``policy``, whose hook is called after it with ``suffix`` behind
            ('step' and 'Step' are both StepLrUpdaterHook, 'CosineAnnealing' is written as it is); a dict with the
            ``type`` of any hook; with ``torch_hook``, also a dict whose policy is the name of a class in
            ``torch.optim.lr_scheduler``.
        suffix: 'LrUpdaterHook' or 'MomentumUpdaterHook'.
        torch_hook: The hook for torch's schedulers, None where they are out of place.

    Raises:
        WrongType: If the config is of another kind.
        WrongValue: If it names no policy.
        KeyError: If there is no such policy.
    """
    if not isinstance(config, dict):
        if isinstance(config, Hook):
            return config
        raise WrongType(f"a schedule is a dict such as dict(policy='step', step=[8, 11]) or a hook, got {config!r}")
    if 'type' in config:
        return HOOKS.build(config)
    if 'policy' not in config:
        raise WrongValue(f"a schedule's config names its policy, as in dict(policy='step', ...), got {config}")
    arguments = config.copy()
    policy = arguments.pop('policy')
    if not isinstance(policy, str):
        raise TypeError(f'policy must be a name such as "step", got {policy!r}')
    name = (policy.title() if policy == policy.lower() else policy) + suffix
    if HOOKS.get(name) is not None:
        return HOOKS.build(dict(arguments, type=name))
    if torch_hook is not None and find_scheduler(policy) is not None:
        return HOOKS.build(dict(arguments, type=torch_hook, scheduler=policy))
    raise KeyError(_unknown_policy(policy, suffix, [] if torch_hook is None else scheduler_names()))


def _unknown_policy(policy: str, suffix: str, others: list[str]) -> str:
    """The message for a policy that nothing is called after."""
    known = [name.removesuffix(suffix) for name in HOOKS.names() if name.endswith(suffix)] + others
    hint = did_you_mean(policy, known)
    listed = ', '.join(known)
    return (
        f'there is no policy {policy!r}{"; " + hint if hint else "."} Policies: {listed}, and every {suffix} of yours.'
    )


def preview_curve(
    hook: Hook,
    optimizer: Optimizer | dict[str, Optimizer],
    max_epochs: int | None,
    max_iters: int | None,
    iters_per_epoch: int,
) -> list[float]:
    """What ``hook`` would make of the first group's learning rate, or momentum, in every iteration of a run.

    Neither the hook nor the optimizer is changed.

    Args:
        hook: A learning-rate or momentum hook that has not run yet.
        optimizer: The optimizer, or a dict of them, that it would work on.
        max_epochs: Length of the run in epochs, None if it is given in iterations only.
        max_iters: Length of the run in iterations, None if it is given in epochs only.
        iters_per_epoch: Length of the loader, at least 1.

    Returns:
        One value per iteration.

    Raises:
        ValueError: If neither limit is given.
    """
    if max_epochs is None and max_iters is None:
        raise ValueError('a curve needs an end: give max_epochs or max_iters')
    total = min(limit for limit in (max_iters, (max_epochs or 0) * iters_per_epoch or None) if limit is not None)
    hook = copy.deepcopy(hook)
    view: Any = SimpleNamespace(
        optimizer=_stand_in(optimizer),
        epoch=0,
        iter=0,
        inner_iter=0,
        by_epoch=True,
        max_epochs=-(-total // iters_per_epoch) if max_epochs is None else max_epochs,
        max_iters=total,
        data_loader=range(iters_per_epoch),
        logger=logging.getLogger(__name__),
        outputs={},
    )
    read = hook._read if isinstance(hook, ParamScheduleHook) else operator.itemgetter('lr')
    groups = groups_of(view.optimizer)
    first_group, _ = next(iter(pair(groups, groups)))
    curve = []
    hook.before_run(view)
    for view.iter in range(total):
        view.epoch, view.inner_iter = divmod(view.iter, iters_per_epoch)
        if view.inner_iter == 0:
            hook.before_train_epoch(view)
        hook.before_train_iter(view)
        curve.append(float(read(first_group)))
        hook.after_train_iter(view)
        if view.inner_iter == iters_per_epoch - 1:
            hook.after_train_epoch(view)
    return curve


def _stand_in(optimizer: Any) -> Any:
    """An optimizer with groups of its own over the same parameters, to be scheduled but never stepped."""
    if isinstance(optimizer, dict):
        return {name: _stand_in(one) for name, one in optimizer.items()}
    double = copy.copy(optimizer)
    double.param_groups = [
        {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in group.items()}
        for group in optimizer.param_groups
    ]
    return double
