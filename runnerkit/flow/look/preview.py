"""Learning rates and momenta of every iteration, computed before the run starts."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from runnerkit.hooks.param_schedule import ScheduleHook, copied, read
from runnerkit.optim.named import named_optimizers

#: Titles of the curves, by key in a parameter group.
TITLES = {'lr': 'Learning rate', 'momentum': 'Momentum'}


class Rehearsal:
    """A substitute for the runner with its own position in the run; other attributes are those of the real runner."""

    by_epoch = True
    epoch = iter = inner_iter = 0

    def __init__(self, runner: Any, max_epochs: int, max_iters: int, iters_per_epoch: int) -> None:
        self._runner = runner
        self.max_epochs = max_epochs
        self.max_iters = max_iters
        self.data_loader = range(iters_per_epoch)
        self.optimizer = stand_in(runner.optimizer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)


@dataclass(frozen=True)
class Curve:
    """One quantity over a run.

    Args:
        title: such as 'Learning rate', or with several optimizers 'Learning rate of G'.
        source: what schedules it, and which parameter group it is if there are several.
        values: one value per iteration.
    """

    title: str
    source: str
    values: list[float]


def preview_curves(runner: Any, iters_per_epoch: int) -> list[Curve]:
    """The learning rate and the momentum of each optimizer's first parameter group in every iteration of a run.

    All schedule hooks run together, in the runner's order, on copies: neither they nor the optimizers are changed.
    Schedulers that depend on scores (ReduceLROnPlateau) are left out.
    """
    max_epochs, max_iters = runner.max_epochs, runner.max_iters
    if max_epochs is None and max_iters is None:
        raise ValueError('a curve needs an end: give max_epochs or max_iters')
    by_epochs = None if max_epochs is None else max_epochs * iters_per_epoch
    total = min(limit for limit in (max_iters, by_epochs) if limit is not None)
    if total == 0:
        return []
    view: Any = Rehearsal(runner, max_epochs or -(-total // iters_per_epoch), total, iters_per_epoch)
    hooks = [copy.deepcopy(hook) for hook in runner.hooks if isinstance(hook, ScheduleHook) and hook.monitor is None]
    tracks: list[tuple[str, str, Any, list[Any]]] = [
        (key, name, one.param_groups, [])
        for key in TITLES
        for name, one in named_optimizers(view.optimizer).items()
        if read(one.param_groups[0], key) is not None
    ]

    def call(point: str) -> None:
        for hook in hooks:
            getattr(hook, point)(view)

    call('before_run')
    for view.iter in range(total):
        view.epoch, view.inner_iter = divmod(view.iter, iters_per_epoch)
        if view.inner_iter == 0:
            call('before_train_epoch')
        call('before_train_iter')
        for key, _, groups, values in tracks:
            values.append(read(groups[0], key))
        call('after_train_iter')
        if view.inner_iter == iters_per_epoch - 1:
            call('after_train_epoch')

    curves = []
    for key, name, groups, values in tracks:
        here = [hook for hook in hooks if hook.optimizer in (None, name)]
        own = [hook for hook in here if hook.key == key]
        if key == 'lr' or own or len(set(values)) > 1:
            # Some torch schedulers also change the momentum.
            sources = own or [hook for hook in here if hook.scheduler]
            source = ', '.join(hook.scheduler or type(hook).__name__ for hook in sources) or 'no schedule'
            several = f'; the first of {len(groups)} parameter groups' if len(groups) > 1 else ''
            curves.append(Curve(f'{TITLES[key]} of {name}' if name else TITLES[key], source + several, values))
    return curves


def stand_in(optimizer: Any) -> Any:
    """A copy of ``optimizer`` with its own groups over the same parameters, to be scheduled but never stepped."""
    if isinstance(optimizer, dict):
        return {name: stand_in(one) for name, one in optimizer.items()}
    double = copy.copy(optimizer)
    double.param_groups = [copied(group) for group in optimizer.param_groups]
    return double
