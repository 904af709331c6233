"""Any ``torch.optim.lr_scheduler`` as a hook: ``lr_config=dict(policy='CosineAnnealingLR', T_max=12)``."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from runnerkit.distributed import reduce_sums
from runnerkit.hooks.hook import HOOKS, RunnerView
from runnerkit.hooks.param_schedule import Group, ScheduleHook, copied, only, per_optimizer
from runnerkit.registry import Registry, find_function
from runnerkit.utils.exceptions import WrongValue
from runnerkit.utils.numbers import check_finite
from runnerkit.utils.signatures import function_arguments
from runnerkit.utils.suggest import did_you_mean, suggestion

#: Schedulers of users: classes like torch's, which are built with an optimizer and have ``step`` and a state.
LR_SCHEDULERS = Registry('learning-rate scheduler')

#: The arguments that are the run's length where they are missing.
LENGTHS = {'OneCycleLR': 'total_steps', 'CosineAnnealingLR': 'T_max'}

#: Arguments that replace the learning rates of the parameter groups.
_RATES = ('max_lr', 'base_lr')

#: What of a ReduceLROnPlateau is no argument.
_OF_PLATEAU = ('best', 'num_bad_epochs', 'cooldown_counter', 'last_epoch')


@HOOKS.register_module()
class TorchLrUpdaterHook(ScheduleHook):
    """Owns one torch scheduler, or one per optimizer of a dict. Their states are part of the checkpoint.

    A warm-up is a separate scheduler::

        dict(
            policy='SequentialLR',
            schedulers=[dict(policy='LinearLR', total_iters=5), dict(policy='CosineAnnealingLR', T_max=95)],
            milestones=[5],
        )

    ``total_steps`` of OneCycleLR and ``T_max`` of CosineAnnealingLR may be left out: they are the length of the run, in
    epochs or, with ``by_epoch=False``, in iterations. A single ``max_lr`` or ``base_lr`` is that of a group whose
    learning rate is the optimizer's; those of other groups are in the same ratio.

    A step is made when the next epoch or iteration begins. Until then, hooks and log lines read the values that were
    used.

    Register your own class in LR_SCHEDULERS (``runnerkit.hooks.torch_scheduler``). If it defines
    ``step(epoch)``, it gets the 0-based index of the epoch, or iteration, that is done.

    ReduceLROnPlateau monitors a logged value. ``monitor='val/accuracy'`` is a score of an evaluation; the scheduler
    steps after each evaluation. ``monitor='train/loss'`` is one of the model's ``log_vars``, averaged over the samples
    of an epoch, or of an iteration with ``by_epoch=False``. With several processes, a score is rank 0's, and a training
    value is the average over all processes.

    Args:
        scheduler: Name of a class in ``torch.optim.lr_scheduler``, or of a registered one.
        by_epoch: Whether a step is an epoch or an iteration.
        monitor: ``train/<name>`` or ``val/<name>``; for ReduceLROnPlateau only.
        optimizer: The name of the one of several optimizers that it is for; None for all.
        **kwargs: The scheduler's own arguments.

    Raises:
        KeyError: If torch has no such scheduler.
        TypeError: If the scheduler does not take the arguments.
        ValueError: If ``monitor`` is missing, not allowed or malformed, if warm-up arguments are given, or if a number
            is NaN or infinite.
    """

    def __init__(
        self,
        scheduler: str,
        by_epoch: bool = True,
        monitor: str | None = None,
        optimizer: str | None = None,
        **kwargs: Any,
    ) -> None:
        check_scheduler_arguments(scheduler, monitor, kwargs)
        kwargs = with_functions(scheduler, kwargs)
        check_finite(scheduler, kwargs)
        self.scheduler = scheduler
        self.by_epoch = by_epoch
        self.monitor = monitor
        self.optimizer = optimizer
        self.arguments = kwargs
        self.schedulers: dict[str, Any] = {}  # of LRSchedulers
        self._length: dict[str, int] = {}  # that of the run, for a scheduler that is not given its own
        self._mode, _, self._key = (monitor or '').partition('/')
        self._sum: Any = 0.0
        self._count = 0
        self._done = 0  # how many epochs or iterations the schedulers have stepped for
        self._due: list[float] = []  # values of the monitor that they have not stepped for yet
        self._epochs_unannounced = False
        self._stepped = False
        self._pending: dict[str, Any] | None = None
        self._resumed: list[tuple[Group, Group]] = []
        self._runner: Any = None  # while it runs

    def before_run(self, runner: RunnerView) -> None:
        """Build the schedulers."""
        self._runner = runner
        self._epochs_unannounced = self.by_epoch and not runner.by_epoch
        if self.schedulers:
            return
        self._done = self._place(runner)
        if name := missing_length(self.scheduler, self.arguments):
            unit, total = ('epochs', runner.max_epochs) if self.by_epoch else ('iters', runner.max_iters)
            if total is None:
                raise ValueError(
                    f'{self.scheduler} needs {name}, and the run does not say how many {unit} it has: give {name}, or '
                    f'max_{unit} of the runner, or by_epoch={not self.by_epoch}'
                )
            self._length = {name: total}
        built = per_optimizer(only(self.optimizer, runner.optimizer), self._build)
        self.schedulers = built if isinstance(built, dict) else {'optimizer': built}
        if self._pending is not None:
            self.load_state_dict(self._pending)

    @property
    def schedule(self) -> str:
        """The scheduler and its arguments as text."""
        return f'{self.scheduler}({describe_scheduler({**self.arguments, **self._length, "by_epoch": self.by_epoch})})'

    def _build(self, name: str, optimizer: Optimizer) -> LRScheduler:
        # A new scheduler sets the values of step 0, which would be wrong in a resumed run.
        before = [copied(group) for group in optimizer.param_groups]
        scheduler = build_scheduler(self.scheduler, optimizer, **self.arguments, **self._length)
        self._resumed += [
            (group, {key: value for key, value in former.items() if key != 'params' and group[key] != value})
            for group, former in zip(optimizer.param_groups, before, strict=True)
        ]
        return scheduler

    def _load(self, state: dict[str, Any]) -> None:
        """Load the schedulers' states; where the schedule or its rates are others now, go to the same place of it."""
        was = state['schedule']
        # At most one step is due, unless the number of iterations was rescaled since the save.
        counts_as_before = self.by_epoch or self._runner.iter - self._done in (0, 1)
        is_same = was == self.schedule and state['schedulers'].keys() == self.schedulers.keys()
        if self._key:  # its place depends on the values so far; the arguments are this run's
            same_kind = was.partition('(')[0] == self.scheduler
            for name in self.schedulers.keys() & state['schedulers'].keys() if same_kind else ():
                scheduler, saved = self.schedulers[name], state['schedulers'][name]
                same_aim = (saved['mode'], state['monitor']) == (scheduler.mode, self.monitor)
                kept = saved if was == self.schedule else {key: saved[key] for key in _OF_PLATEAU}
                scheduler.load_state_dict(kept if same_aim else {'last_epoch': saved['last_epoch']})
        elif is_same and state['rates'] == self._rates() and counts_as_before:
            for name, scheduler in self.schedulers.items():
                scheduler.load_state_dict(state['schedulers'][name])
        else:
            self._begin_again()
            return
        for group, values in self._resumed:
            group.update(values)

    def _rates(self) -> dict[str, list[float]]:
        """What the schedule starts from, for each parameter group."""
        return {
            name: [float(group.get('initial_lr', 0.0)) for group in scheduler.optimizer.param_groups]
            for name, scheduler in self.schedulers.items()
        }

    def _begin_again(self) -> None:
        """Go through the schedule from its start to where the run is."""
        optimizers = {name: scheduler.optimizer for name, scheduler in self.schedulers.items()}
        for group in (group for optimizer in optimizers.values() for group in optimizer.param_groups):
            group['lr'] = group.pop('initial_lr', group['lr'])
        self.schedulers = {name: self._build(name, optimizer) for name, optimizer in optimizers.items()}
        self._done = 0
        self._step_to(self._place(self._runner))

    def _place(self, runner: RunnerView) -> int:
        """How many epochs or iterations are done."""
        return runner.epoch if self.by_epoch else runner.iter

    def before_train_epoch(self, runner: RunnerView) -> None:
        """Take the steps of epochs that are due. Until then, hooks and loggers read the values that were used."""
        if self.by_epoch:
            self._take_due(runner)

    def _take_due(self, runner: RunnerView) -> None:
        if not self._key:
            self._step_to(self._place(runner))
        for value in self._due:
            self._step(value)
        self._due.clear()

    def before_train_iter(self, runner: RunnerView) -> None:
        """Take the steps that are due: an iteration runner has no epoch points, and an evaluation comes at any time."""
        if self._resumed:
            self._resumed = []
            if runner.iter > 0:
                runner.logger.warning(
                    '%s starts over at iteration %d: the checkpoint has no state of it',
                    self.scheduler,
                    runner.iter,
                )
        if self._epochs_unannounced and self._key and runner.epoch > self._done:
            self._done = runner.epoch
            self._end_unit()
        self._take_due(runner)

    def after_train_iter(self, runner: RunnerView) -> None:
        """Record the monitored value."""
        if self._mode != 'train':
            return
        log_vars, samples = runner.outputs['log_vars'], runner.outputs['num_samples']
        if self._key not in log_vars:
            raise KeyError(
                f"monitor='{self.monitor}': the model's log_vars have no {self._key!r}, only {list(log_vars)}"
            )
        value = log_vars[self._key]
        self._sum = self._sum + (value.detach() if isinstance(value, Tensor) else value) * samples
        self._count += samples
        if not self.by_epoch:
            self._end_unit()

    def after_train_epoch(self, runner: RunnerView) -> None:
        """Average the monitored value over the epoch."""
        if self.by_epoch:
            self._end_unit()

    def after_evaluate(self, runner: RunnerView, scores: dict[str, float]) -> None:
        """Record the score of an evaluation."""
        if self._mode == 'val' and self._key in scores:
            self._due.append(scores[self._key])

    def after_run(self, runner: RunnerView) -> None:
        """Warn if there was nothing to monitor."""
        self._runner = None
        is_complete = runner.outcome is not None and runner.outcome.kind == 'completed'
        if self._mode == 'val' and not (self._stepped or self._due) and is_complete:
            runner.logger.warning(
                "%s did nothing: no evaluation has found its monitor='%s'", self.scheduler, self.monitor
            )

    def _end_unit(self) -> None:
        """Take the average of a training value; all ranks call it."""
        if self._mode == 'train':
            total, count = reduce_sums([float(self._sum), float(self._count)])
            self._sum, self._count = 0.0, 0
            self._due.append(total / count)

    def _step_to(self, done: int) -> None:
        for unit in range(self._done, done):
            self._step(done=unit)
        self._done = max(self._done, done)

    def _step(self, *metric: float, done: int | None = None) -> None:
        with warnings.catch_warnings():
            # torch warns if the optimizer has not stepped yet, but with accumulation this is right
            warnings.filterwarnings('ignore', 'Detected call of `lr_scheduler.step', UserWarning)
            self._stepped = True
            for scheduler in self.schedulers.values():
                if takes_epoch(scheduler):
                    scheduler.step(epoch=done)
                else:
                    scheduler.step(*metric)

    def state_dict(self) -> dict[str, Any]:
        """Return the schedulers' states and the unfinished average."""
        return {
            'schedule': self.schedule,
            'monitor': self.monitor,
            'rates': self._rates(),
            'schedulers': {name: scheduler.state_dict() for name, scheduler in self.schedulers.items()},
            'sum': self._sum,
            'count': self._count,
            'done': self._done,
            'due': list(self._due),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore them; if the schedulers are not built yet, keep the state until they are."""
        if not self.schedulers:
            self._pending = state
            return
        self._done = state.get('done', self._place(self._runner))  # earlier versions had stepped for what was done
        self._due = list(state.get('due', ()))
        self._load(state)
        self._sum, self._count = state['sum'], state['count']
        self._resumed, self._pending = [], None


def find_scheduler(name: str) -> type[LRScheduler] | None:
    """Return the scheduler class of that name, a registered one or torch's; None if there is none."""
    if name in LR_SCHEDULERS:
        return LR_SCHEDULERS.get(name)
    found = getattr(lr_scheduler, name, None)
    is_scheduler = isinstance(found, type) and issubclass(found, LRScheduler) and found is not LRScheduler
    return found if is_scheduler and not name.startswith('_') else None


def scheduler_names() -> list[str]:
    """Return the names of all schedulers: torch's, and the registered ones."""
    return [*(name for name in vars(lr_scheduler) if find_scheduler(name)), *LR_SCHEDULERS.names()]


def takes_epoch(scheduler: Any) -> bool:
    """Whether a scheduler defines ``step(epoch)`` itself, as Vega's users write it; torch's is deprecated."""
    step = type(scheduler).step
    return not step.__module__.startswith('torch.') and 'epoch' in inspect.signature(step).parameters


def missing_length(scheduler: str, arguments: Mapping[str, Any]) -> str | None:
    """The argument for the scheduler's length, if it is missing and the run's length may stand in for it."""
    name = LENGTHS.get(scheduler)
    return name if name is not None and not {name, 'epochs', 'steps_per_epoch'} & set(arguments) else None


def describe_scheduler(arguments: Mapping[str, Any]) -> str:
    """Arguments as text that is the same in each process: a function is its name."""

    def text(value: Any) -> str:
        if isinstance(value, Mapping):
            return f'dict({describe_scheduler(value)})'
        if isinstance(value, (list, tuple)):
            return f'[{", ".join(map(text, value))}]'
        if value is None or isinstance(value, (bool, int, float, str)):
            return repr(value)
        return getattr(value, '__qualname__', type(value).__name__)

    return ', '.join(f'{name}={text(value)}' for name, value in sorted(arguments.items()))


def with_functions(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the scheduler ``name`` with functions in the place of their names, also in ``schedulers``."""
    found, scheduler = dict(arguments), find_scheduler(name)
    for key in function_arguments(scheduler) if scheduler else ():
        if key in found:
            found[key] = find_function(found[key], key, arguments)
    if 'schedulers' in found:
        if not all(isinstance(part, Mapping) and 'policy' in part for part in found['schedulers']):
            raise TypeError(
                "schedulers holds dicts such as dict(policy='LinearLR', total_iters=5), got "
                f'{describe_scheduler({"schedulers": found["schedulers"]})}'
            )
        found['schedulers'] = [with_functions(part['policy'], part) for part in found['schedulers']]
    return found


def check_scheduler_arguments(scheduler: str, monitor: str | None, arguments: dict[str, Any]) -> None:
    """Check the arguments before the run starts."""
    found = find_scheduler(scheduler)
    if found is None:
        hint = did_you_mean(scheduler, scheduler_names())
        raise KeyError(f'torch.optim.lr_scheduler has no {scheduler!r}{hint and "; " + hint}')
    warmup = sorted(key for key in arguments if key.startswith('warmup'))
    if warmup:
        raise ValueError(
            f"{scheduler} takes no {', '.join(warmup)}; to warm up, use policy='SequentialLR' with "
            "schedulers=[dict(policy='LinearLR', ...), ...], or one of runnerkit's own policies"
        )
    if issubclass(found, ReduceLROnPlateau):
        if monitor is None or not monitor.startswith(('train/', 'val/')):
            raise ValueError(
                f"{scheduler} needs a number to watch: monitor='train/loss' or 'val/accuracy', got {monitor!r}"
            )
    elif monitor is not None:
        raise ValueError(f'{scheduler} watches no number: leave monitor={monitor!r} out, or use ReduceLROnPlateau')
    length = missing_length(scheduler, arguments)
    try:
        inspect.signature(found).bind(optimizer=None, **({length: 1} if length else {}), **arguments)
    except TypeError as error:
        known = [name for name in inspect.signature(found).parameters if name not in ('optimizer', 'last_epoch')]
        unknown = next((name for name in arguments if name not in known), '')
        raise TypeError(f'{scheduler}: {error}; it takes {", ".join(known)}{suggestion(unknown, known)}') from error


def build_scheduler(name: str, optimizer: Optimizer, **arguments: Any) -> LRScheduler:
    """Build the scheduler of that name for ``optimizer``, and those in ``schedulers``."""
    factors = multipliers(optimizer)

    def build(policy: str, given: Mapping[str, Any]) -> LRScheduler:
        scheduler: Any = find_scheduler(policy)
        if scheduler is None:
            raise KeyError(f'torch.optim.lr_scheduler has no {policy!r}, only {", ".join(scheduler_names())}')
        options = {key: value for key, value in given.items() if key != 'policy'}
        if 'schedulers' in options:
            options['schedulers'] = [build(part['policy'], part) for part in options['schedulers']]
        for key, value in options.items():
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if key in ('step_size', 'T_max') and is_number and value <= 0:  # torch divides by them, later
                raise WrongValue(f'{policy}: {key} must be above 0, got {value!r}')
            if key in _RATES and is_number and {*factors} != {1.0}:
                options[key] = [value * factor for factor in factors]
        return scheduler(optimizer=optimizer, **options)

    return build(name, arguments)


def multipliers(optimizer: Optimizer) -> list[float]:
    """Return by how much each group's learning rate differs from the optimizer's, as ``paramwise_cfg`` says."""
    rates = [float(group.get('initial_lr', group['lr'])) for group in optimizer.param_groups]
    base = float(optimizer.defaults.get('lr', 0))
    return [rate / base for rate in rates] if base and len(set(rates)) > 1 else [1.0] * len(rates)
