"""The contract between a runner and its hooks: when a hook is called, and what it may read.

The whole life of a run, for the epoch runner (the iteration runner has no epoch points: it calls
``before_epoch`` once before the first iteration and ``after_epoch`` once after the last)::

    with around_run:
        before_run
        while not done:                                 # the workflow, e.g. [('train', 2), ('val', 1)]
            with around_epoch:
                before_train_epoch                      # before_val_epoch in a validation epoch
                for data_batch in data_loader:
                    with around_iter:
                        before_train_iter               # before_val_iter
                        outputs = model.train_step(…)   # model.val_step(…)
                        after_forward
                        after_train_iter                # after_val_iter; the OptimizerHook is here, and in it
                                                        #     after_backward, after_step
                    iter += 1
                after_train_epoch                       # after_val_epoch
            epoch += 1
        after_run                                       # always, also after an exception or Ctrl-C

and for each evaluation (a validation epoch above, `EvalHook`, ``runner.evaluate``)::

    with around_val:
        …                                               # what is evaluated, see above
    after_evaluate(scores)                              # on every rank, with the same scores

``around_save`` spans the writing of each checkpoint, to swap weights: by ``.data``, as a save may come before a
backward pass; ``after_save`` is called when it is written;
``after_roll_back`` is called after a return to an older checkpoint; ``after_resume`` when a resumed run is where it
was, before its first iteration; ``after_log`` on rank 0 when a line is logged, which ``runner.log_buffer.output`` still
has; ``after_image(name, pixels)`` on each rank that calls `runnerkit.report_image`, with a
uint8 array ``[height, width, channels]``; ``while_waiting`` some times a second while the run waits for the data of a
stream, and after each iteration of a run inside it; ``after_outcome`` last of all, when ``runner.outcome`` includes
errors of ``after_run`` on any rank (but not in a ``run`` of a subclass, which has no outcome). At every point, hooks
with a lower priority number are called first, before and after alike. Rings (``around_*``) nest instead: the lowest
number is the outermost.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, Protocol, runtime_checkable

from runnerkit.registry import Registry
from runnerkit.utils.exceptions import one_line
from runnerkit.utils.lazy import EntryPoints

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from runnerkit.hooks.step_record import StepRecord


class Priority(Enum):
    """Named priorities. The comment of each one says which hooks have it.

    Any integer in ``[0, 100]`` is also a priority. Hooks of equal priority are called in the order of registration.
    """

    HIGHEST = 0  # none of ours: for a hook that must come first
    VERY_HIGH = 10  # learning rate: set before the iteration uses it
    HIGH = 30  # momentum
    ABOVE_NORMAL = 40  # the optimizer's update
    NORMAL = 50  # checkpoints, and custom hooks without a priority
    BELOW_NORMAL = 60
    LOW = 70  # timer, evaluation: they look at a finished iteration
    VERY_LOW = 90  # loggers: they write what the other hooks have collected
    LOWEST = 100


def get_priority(priority: int | str | Priority) -> int:
    """Turn a priority's name, number or enum member into its number.

    Raises:
        ValueError: a number outside ``[0, 100]``.
        KeyError: an unknown name.
        TypeError: neither a number, nor a name, nor a `Priority`.
    """
    if isinstance(priority, Priority):
        return priority.value
    if isinstance(priority, int) and not isinstance(priority, bool):
        if not 0 <= priority <= 100:
            raise ValueError(f'priority must be between 0 (first) and 100 (last), but got {priority}')
        return priority
    if isinstance(priority, str):
        try:
            return Priority[priority.upper()].value
        except KeyError:
            names = ', '.join(f'{band.name} ({band.value})' for band in Priority)
            raise KeyError(f'there is no priority named {priority!r}; the names are {names}') from None
    raise TypeError(
        f'priority must be an integer, a name or a Priority, but got {priority!r} ({type(priority).__name__})'
    )


_OF_PACKAGES = EntryPoints('runnerkit.hooks')

#: Hooks by name; of one that is not registered, the entry points of installed packages are asked.
HOOKS = Registry('hook', fallback=_OF_PACKAGES.load, fallback_names=_OF_PACKAGES.names)

#: MMCV's ten points, in the order in which a run meets them.
STAGES = (
    'before_run',
    'before_train_epoch',
    'before_train_iter',
    'after_train_iter',
    'after_train_epoch',
    'before_val_epoch',
    'before_val_iter',
    'after_val_iter',
    'after_val_epoch',
    'after_run',
)

#: Points inside one update, which MMCV does not have.
UPDATE_POINTS = ('after_forward', 'after_backward', 'after_step')

#: The generic point that is used instead of a train or val point that a hook does not override.
FALLBACKS = {
    f'{when}_{mode}_{unit}': f'{when}_{unit}'
    for when in ('before', 'after')
    for mode in ('train', 'val')
    for unit in ('epoch', 'iter')
}

#: The points of a validation.
VAL_POINTS = tuple(point for point in FALLBACKS if '_val_' in point)

#: Every method that a runner calls by itself.
POINTS = (*STAGES, *dict.fromkeys(FALLBACKS.values()), *UPDATE_POINTS, 'after_evaluate')

#: Spans that a hook may put a context manager around.
RINGS = ('around_run', 'around_epoch', 'around_iter', 'around_val', 'around_save')


class LoopLeft(BaseException):
    """Ends the run of a user's loop that was left, by ``break`` or by an error that is not known yet."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended. ``str(outcome)`` is the text of the log, such as ``'stopped: SIGTERM'``.

    Attributes:
        kind: ``'completed'``; ``'stopped'`` by ``runner.stop`` or by a first signal; ``'diverged'`` if the run is
            complete or was stopped, and its weights are NaN or infinite; ``'interrupted'`` by a KeyboardInterrupt;
            ``'failed'`` by any other exception, also one of ``after_run`` or of another rank.
        reason: the argument of ``runner.stop``, or the signal's name.
        error: the exception, if the run was interrupted or failed; of a loop that was left, a `LoopLeft`.
    """

    kind: Literal['completed', 'stopped', 'diverged', 'interrupted', 'failed']
    reason: str | None = None
    error: BaseException | None = None

    @classmethod
    def of(cls, error: BaseException) -> Outcome:
        """The outcome of a run that ``error`` ends."""
        if isinstance(error, LoopLeft):
            return cls('stopped', str(error), error)
        return cls('interrupted' if isinstance(error, KeyboardInterrupt) else 'failed', error=error)

    @property
    def ended_well(self) -> bool:
        """Whether the run is complete or was stopped on purpose, with finite weights."""
        return self.kind in ('completed', 'stopped') and self.error is None

    def __str__(self) -> str:
        if self.kind == 'failed' and self.error is not None:
            try:
                return f'failed: {self.error!r}'
            except Exception:  # of the user's own __repr__
                return f'failed: {one_line(self.error)}'
        return self.kind if self.reason is None else f'{self.kind}: {self.reason}'


class Score(NamedTuple):
    """One score of an evaluation.

    Attributes:
        value: the score.
        iter: the number of training iterations completed at the evaluation.
    """

    value: float
    iter: int


@runtime_checkable
class RunnerView(Protocol):
    """What a hook may read and call of a runner. Built-in hooks use nothing else.

    ``epoch``, ``iter`` and ``inner_iter`` are 0-based indices of what is running. ``completed_epochs`` and
    ``completed_iters`` count what is done; checkpoints store these. ``scores`` has the latest value of each score by
    name, from any evaluation, equal on every rank; checkpoints also store it. ``outcome`` is None until the run has
    ended. ``evaluates_on`` names the split that evaluations are on, for the log; None where log lines are MMCV's. Every
    rank calls ``save``. What a hook puts into ``notices``, by subject, is logged again at the end.
    ``outputs`` is the dict that the last step has returned; ``step_record()`` is that of the running
    iteration, typed.
    """

    model: nn.Module
    optimizer: Optimizer | dict[str, Optimizer] | None
    logger: logging.Logger
    meta: dict[str, Any]
    log_buffer: Any
    outputs: dict[str, Any]
    data_batch: Any
    data_loader: Any
    mode: str | None
    timestamp: str
    update_calls: int
    losses_by_optimizer: Counter[str]
    work_dir: str | None
    parent: Any
    scores: dict[str, Score]
    notices: dict[str, str]
    batch_processor: Any
    evaluates_on: str | None

    @property
    def loaders(self) -> list[Any]: ...
    @property
    def epoch(self) -> int: ...
    @property
    def iter(self) -> int: ...
    @property
    def inner_iter(self) -> int: ...
    @property
    def completed_epochs(self) -> int: ...
    @property
    def completed_iters(self) -> int: ...
    @property
    def trained_epoch(self) -> int: ...
    @property
    def max_epochs(self) -> int | None: ...
    @property
    def max_iters(self) -> int | None: ...
    @property
    def by_epoch(self) -> bool: ...
    @property
    def rank(self) -> int: ...
    @property
    def unfinished(self) -> tuple[str, ...]: ...
    @property
    def hooks(self) -> list[Hook]: ...
    @property
    def outcome(self) -> Outcome | None: ...
    @property
    def is_ending(self) -> bool: ...
    @property
    def last_finite(self) -> str | None: ...

    def save(self, out_dir: str | None = None, filename_tmpl: str | None = None, **options: Any) -> str | None: ...
    def save_checkpoint(self, out_dir: str, *args: Any, **kwargs: Any) -> str: ...
    def last_checkpoint(self) -> str | None: ...
    def non_finite(self, alone: bool = False) -> dict[str, str]: ...
    def required(self, key: str) -> Any: ...
    def update(self, loss: Tensor | Mapping[str, Tensor], optimizer: Optimizer | str | None = None) -> None: ...
    def configure_update(self, optimizer: Optimizer | str | None = None, **options: Any) -> Any: ...
    def evaluate(self, loader: Any, hooks: Any = (), test_fn: Any = None, scope: str = 'val') -> dict[str, Any]: ...
    def around_val(self) -> AbstractContextManager[dict[str, Any]]: ...
    def resume(self, checkpoint: str, *args: Any, **kwargs: Any) -> None: ...
    def roll_back(self, checkpoint: str) -> NoReturn: ...
    def step_record(self) -> StepRecord: ...
    def nested(self, name: str) -> AbstractContextManager[None]: ...
    def stop(self, reason: str) -> None: ...


class Hook:
    """Code that is called at fixed points of a run. Override the points you need; the others cost nothing.

    A hook with state returns it in `state_dict` and restores it in `load_state_dict`; it is then part of every
    checkpoint, separately for each rank. A hook may also provide rings, methods that return a context manager for a
    span of the run: ``around_run(runner)``, ``around_epoch``, ``around_iter``, ``around_val`` and ``around_save``.
    """

    stages = STAGES

    #: True for a hook that saves the run's state. It is called after all other hooks of a point, whatever its
    #: priority. What it saves then includes what they did there (a best score, a log line), and a resumed run does
    #: not repeat it.
    runs_last = False

    #: True for a hook that has no meaning without a training: it updates weights, changes rates, saves or logs the run.
    #: An evaluation without a training (``runnerkit test``, the stage `Infer`) leaves it out.
    needs_training = False

    #: True for a hook that sends or keeps something outside of the work dir: it reports to a server, or writes a file
    #: that its arguments name. A replay leaves it out.
    sends_outside = False

    #: True for a hook that skips updates whose loss or gradients are not finite: such losses do not count then when a
    #: checkpoint is judged.
    skips_updates = False

    #: True for a hook that runs other runners inside the run (``runner.nested``). It is called after all other hooks
    #: of a point but those that save the run's state: a nested run that starts again repeats none of them.
    nests_runs = False

    #: Whether ``evaluation=dict(…)`` of a config calls the val points that the hook overrides itself. False for a hook
    #: that only wants those of the workflow's ``'val'`` entries. A logger does: it logs the scores of an evaluation in
    #: the training's next line.
    hears_evaluations = True

    def before_run(self, runner: RunnerView) -> None:
        """Called once, before the first epoch or iteration."""

    def after_run(self, runner: RunnerView) -> None:
        """Called once at the end, also after an exception; ``runner.outcome`` tells how the run ended."""

    def before_epoch(self, runner: RunnerView) -> None:
        """Called where neither ``before_train_epoch`` nor ``before_val_epoch`` is overridden."""

    def after_epoch(self, runner: RunnerView) -> None:
        """Called where neither ``after_train_epoch`` nor ``after_val_epoch`` is overridden."""

    def before_iter(self, runner: RunnerView) -> None:
        """Called where neither ``before_train_iter`` nor ``before_val_iter`` is overridden."""

    def after_iter(self, runner: RunnerView) -> None:
        """Called where neither ``after_train_iter`` nor ``after_val_iter`` is overridden."""

    def before_train_epoch(self, runner: RunnerView) -> None:
        """Called before the first batch of a training epoch is read."""
        self.before_epoch(runner)

    def before_val_epoch(self, runner: RunnerView) -> None:
        """Called before the first batch of a validation epoch is read."""
        self.before_epoch(runner)

    def after_train_epoch(self, runner: RunnerView) -> None:
        """Called after a training epoch, before ``runner.epoch`` moves on."""
        self.after_epoch(runner)

    def after_val_epoch(self, runner: RunnerView) -> None:
        """Called after a validation epoch."""
        self.after_epoch(runner)

    def before_train_iter(self, runner: RunnerView) -> None:
        """Called with ``runner.data_batch`` set, before the model sees it."""
        self.before_iter(runner)

    def before_val_iter(self, runner: RunnerView) -> None:
        """Called with ``runner.data_batch`` set, before the model sees it."""
        self.before_iter(runner)

    def after_train_iter(self, runner: RunnerView) -> None:
        """Called with ``runner.outputs`` set, before ``runner.iter`` moves on."""
        self.after_iter(runner)

    def after_val_iter(self, runner: RunnerView) -> None:
        """Called with ``runner.outputs`` set."""
        self.after_iter(runner)

    def after_forward(self, runner: RunnerView) -> None:
        """Called right after the model's step, before any ``after_*_iter``."""

    def after_backward(self, runner: RunnerView) -> None:
        """Called inside an update, after the backward pass and before the optimizer's step."""

    def after_step(self, runner: RunnerView) -> None:
        """Called inside an update after the optimizer's step; not in iterations that only accumulate."""

    def after_evaluate(self, runner: RunnerView, scores: dict[str, float]) -> None:
        """Called on every rank after each evaluation, when ``runner.scores`` is up to date and the model is back in its
        former mode. The place for decisions that depend on the scores.

        Args:
            runner: the run.
            scores: this evaluation's scores by name, the same on every rank.
        """

    def before_resume(self, runner: RunnerView, checkpoint: dict[str, Any]) -> None:
        """Called by ``runner.resume`` before ``checkpoint`` is used: the place to rename or swap weights."""

    def every_n_epochs(self, runner: RunnerView, n: int) -> bool:
        """Whether the running epoch is the last of a group of ``n``; never for ``n <= 0``."""
        return (runner.epoch + 1) % n == 0 if n > 0 else False

    def every_n_inner_iters(self, runner: RunnerView, n: int) -> bool:
        """Whether the running iteration of this epoch is the last of a group of ``n``; never for ``n <= 0``."""
        return (runner.inner_iter + 1) % n == 0 if n > 0 else False

    def every_n_iters(self, runner: RunnerView, n: int) -> bool:
        """Whether the running iteration is the last of a group of ``n``; never for ``n <= 0``."""
        return (runner.iter + 1) % n == 0 if n > 0 else False

    def end_of_epoch(self, runner: RunnerView) -> bool:
        """Whether the running iteration is the last of its epoch."""
        return runner.inner_iter + 1 == len(runner.data_loader)

    def is_last_epoch(self, runner: RunnerView) -> bool:
        """Whether the running epoch is the run's last one."""
        return runner.epoch + 1 == runner.max_epochs

    def is_last_iter(self, runner: RunnerView) -> bool:
        """Whether the running iteration is the run's last one."""
        return runner.iter + 1 == runner.max_iters

    def get_triggered_stages(self) -> list[str]:
        """Return the points, of MMCV's ten, at which this hook does something, in the order of a run."""
        return [stage for stage in STAGES if listens(self, stage)]

    def for_evaluation(self) -> Hook | None:
        """The hook of an evaluation without a training: this one, another one, or None if there is none.

        Such an evaluation enters its rings and calls ``before_run``, ``after_run``, ``after_evaluate``, and where the
        training would also do so, the val points. The runner has no optimizer and no outcome then, and its work dir is
        a folder for what the evaluation writes.
        """
        return None if self.needs_training or not takes_part_in_evaluation(self) else self

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint stores of this hook: tensors and plain Python values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""


def overrides(hook: Hook, method: str) -> bool:
    """Whether ``hook`` replaces the base class's ``method``, in its class or by an attribute of the instance."""
    return getattr(getattr(hook, method), '__func__', None) is not getattr(Hook, method)


def listens(hook: Hook, point: str) -> bool:
    """Whether ``hook`` overrides ``point``, or the generic point that it falls back to."""
    return overrides(hook, point) or (point in FALLBACKS and overrides(hook, FALLBACKS[point]))


def takes_part_in_evaluation(hook: Hook) -> bool:
    """Whether ``hook`` does something while a model is evaluated, or learns the scores."""
    points = (*VAL_POINTS, 'after_forward', 'after_evaluate')
    rings = (ring for ring in RINGS if ring != 'around_save')
    return any(listens(hook, point) for point in points) or any(hasattr(hook, ring) for ring in rings)
