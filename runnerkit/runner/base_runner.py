"""MMCV's surface of a run: each attribute and method is one of a part of the engine."""

from __future__ import annotations

import logging
import os
import time
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from operator import attrgetter
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from runnerkit.data.reader import Reader
from runnerkit.distributed import get_dist_info
from runnerkit.hooks.hook import Hook, Score
from runnerkit.hooks.hook_table import HookTable, call_each, check_method_names
from runnerkit.hooks.registration import Registration
from runnerkit.hooks.step_record import StepRecord, record_of
from runnerkit.hooks.weights import Finiteness, WeightWatch
from runnerkit.log_buffer import LogBuffer
from runnerkit.optim.builder import check_optimizer
from runnerkit.optim.named import learning_rates, momenta
from runnerkit.parallel import to_device, unwrap
from runnerkit.parallel.steps import check_outputs, check_samples, check_step, required_output
from runnerkit.runner.builder import absolute_work_dir, check_settings
from runnerkit.runner.changes import Changes
from runnerkit.runner.evaluator import Evaluator
from runnerkit.runner.lifecycle import Lifecycle
from runnerkit.runner.plan import Plan
from runnerkit.runner.progress import Progress
from runnerkit.runner.readers import Readers
from runnerkit.runner.saver import Saver
from runnerkit.runner.snapshots import Snapshots
from runnerkit.runner.stop import Stop
from runnerkit.runner.updater import Updater, update
from runnerkit.runner.workflow import Workflow
from runnerkit.utils.exceptions import WrongType
from runnerkit.utils.logging import get_logger
from runnerkit.utils.paths import mkdir_or_exist

P = ParamSpec('P')
R = TypeVar('R')


def _of(path: str, doc: str) -> Any:
    """A read-only property without a Python call: hooks read these several times in each iteration."""
    return property(attrgetter(path), doc=doc)


def handed_on(part: str, method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """A method of the runner that calls one of a part, with its signature and docstring."""
    part_of = attrgetter(part)

    @wraps(method)
    def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(part_of(self), *args, **kwargs)

    return call


def _of_mmcv(path: str, flag: str | None = None) -> Any:
    """An attribute of a part that loops of MMCV's shape write. A new value clears ``flag``: it is not done yet."""
    part, name = path.split('.')

    def write(self: BaseRunner, value: Any) -> None:
        if flag is not None and value != getattr(getattr(self, part), name):
            setattr(getattr(self, part), flag, False)
        setattr(getattr(self, part), name, value)

    return property(attrgetter(path), write)


class BaseRunner(Registration, metaclass=ABCMeta):
    """A training run: a model, its optimizer, hooks, and the parts of the engine.

    Args:
        model: a module with ``train_step`` (and ``val_step`` where there is validation), or any if
            ``batch_processor`` is given.
        batch_processor: MMCV's old form of the step, ``batch_processor(model, data, train_mode=…) -> dict``.
        optimizer: one, or several by name.
        work_dir: where logs and checkpoints go; created. None: nowhere.
        logger: by default runnerkit's own.
        meta: what every checkpoint stores about this run; copied.
        max_iters: how many iterations to train; give it or ``max_epochs``.
        max_epochs: how many epochs to train.
    """

    #: Whether a run's unit is the epoch; the default of the hooks' ``by_epoch``.
    by_epoch = True
    #: Whether evaluations leave the random states of the training unchanged. True in a run by config. By default
    #: `EvalHook` and ``'val'`` entries of the workflow advance them, as in MMCV, if the loader or the model draws.
    keeps_random_states = False
    #: Whether this run's settings win over those of a resumed checkpoint. True in a run by config. If False, the
    #: checkpoint's optimizer settings stay in effect, as in MMCV, and a warning lists them.
    config_wins = False
    #: The split that evaluations use. A run by config sets it and logs runnerkit's messages; None: MMCV's messages.
    evaluates_on: str | None = None
    #: With ``auto_scale_lr``: the samples of each rank's batch, and ``base_batch_size``. The learning rates were
    #: multiplied by the former and by the number of ranks, and divided by the latter.
    lr_scaled_for: tuple[int, int] | None = None
    #: The device that batches are moved to; None: the model's wrapper moves them, or they are there already.
    batch_device: torch.device | None = None
    #: Whether ranks that begin with different weights copy those of rank 0. True in a run by config. If False, they
    #: stay different, as in MMCV, with a warning.
    repairs_weights = False
    #: Whether a subclass of the iteration runner overrides ``train``.
    has_own_train = False

    #: Checks that the model has a step; subclasses that get their model later check when they run.
    _check_step = staticmethod(check_step)

    def __init__(
        self,
        model: nn.Module,
        batch_processor: Callable[..., dict[str, Any]] | None = None,
        optimizer: Optimizer | dict[str, Optimizer] | None = None,
        work_dir: str | os.PathLike[str] | None = None,
        logger: logging.Logger | None = None,
        meta: dict[str, Any] | None = None,
        max_iters: int | None = None,
        max_epochs: int | None = None,
    ) -> None:
        self._check_step(model, batch_processor)
        check_optimizer(optimizer)
        check_settings(logger, meta, work_dir, max_epochs, max_iters)
        self.model: Any = model  # a module whose steps are found by name
        self.batch_processor = batch_processor
        self.optimizer = optimizer
        self.logger = get_logger('runnerkit') if logger is None else logger
        self.meta: dict[str, Any] = dict(meta or {})
        self.work_dir = None if work_dir is None else absolute_work_dir(work_dir)
        if self.work_dir is not None:
            mkdir_or_exist(self.work_dir)
        self._model_name = type(unwrap(model)).__name__
        self._rank, self._world_size = get_dist_info()
        self.timestamp = time.strftime('%Y%m%d_%H%M%S', time.localtime())
        self.mode: str | None = None
        self.data_loader: Any = None
        self.data_batch: Any = None
        self.outputs: dict[str, Any] = {}
        #: The iteration, or the evaluation's mode, whose step returned `outputs`; None once that is over.
        self.outputs_of: int | str | None = None
        self.log_buffer = self.train_log = LogBuffer()
        #: The latest value of each score by name, the same on every rank.
        self.scores: dict[str, Score] = {}
        #: Warnings of the running or last run by subject, repeated in its last log lines.
        self.notices: dict[str, str] = {}
        self._make_parts(max_epochs, max_iters)

    def _make_parts(self, max_epochs: int | None, max_iters: int | None) -> None:
        """The parts of the engine, in the order in which they are called at a point. All attributes set here are."""
        others = set(vars(self))
        self.hooks = hooks = HookTable(runner=self)
        hooks.calls_parts = not hasattr(type(self).call_hook, '_has_parts')
        self.progress = Progress(self.by_epoch)
        self.plan = Plan(self, max_epochs, max_iters)
        self.stopping = Stop(self)
        self.changes = Changes(self)
        self.updater = Updater(self)
        self.evaluator = Evaluator(self)
        self.readers: Readers = Readers(
            self.progress,
            self.plan,
            logger=lambda: self.logger,
            reading=lambda: (self.data_loader, self.data_batch),
            restore=lambda: self.snapshots.restore_moment(),
        )
        self.snapshots: Snapshots = Snapshots(self)
        self.lifecycle: Lifecycle = Lifecycle(self)
        self.weight_watch = WeightWatch()
        self.finiteness = Finiteness(self)
        self._parts = {name: type(part) for name, part in vars(self).items() if name not in others}
        for part in (self.progress, self.readers, self.lifecycle, self.changes):
            hooks.add_part(part)
        hooks.listen('before_run', self.updater.before_run)
        hooks.listen('before_run', self.evaluator.before_run)
        hooks.listen('before_run', self.lifecycle.begin, is_last=True)
        hooks.listen('after_run', self.snapshots.saver.after_run)
        if self.has_own_train:
            self.readers.count_trained(hooks)
        for leave in (self.evaluator.after_run, self.snapshots.saver.after_run, self.updater.after_run):
            hooks.listen('after_run', leave, is_last=True)  # a hook may have saved in after_run

    def register_part(self, name: str, part: Any, is_last: bool = False) -> None:
        """Call the methods of ``part`` that are named like points, before all hooks or after them; enter its rings
        (``around_iter``) outside the hooks' or inside them; and save and restore it if it has ``state_dict`` and
        ``load_state_dict``.

        Args:
            name: its unique name in checkpoints.
            part: any object. If a subclass overrides ``call_hook`` and calls the hooks itself, ``after_forward``,
                ``after_backward``, ``after_step`` and ``while_waiting`` are called only if a hook also has that method.
            is_last: whether it is called after all hooks.

        Raises:
            ValueError: the name is taken, or a method's name is almost that of a point.
        """
        check_method_names(type(part))  # type: ignore[arg-type]  # a class is hashable
        if hasattr(part, 'state_dict'):
            self.snapshots.add(name, part)
        self.hooks.add_part(part, is_last)

    # --- the run -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def run(self, data_loaders: list[Any], workflow: Workflow, **kwargs: Any) -> Any:
        """Run ``workflow`` over ``data_loaders`` (one for each entry) until the run is done."""

    @abstractmethod
    def train(self, data_loader: Any, **kwargs: Any) -> Any:
        """Run one training unit."""

    @abstractmethod
    def val(self, data_loader: Any, **kwargs: Any) -> Any:
        """Run one validation unit."""

    def validate_entry(self, data_loader: Any, **kwargs: Any) -> None:
        """Validate a unit of a ``'val'`` entry by iterations."""
        self.val(data_loader, **kwargs)

    @abstractmethod
    def save_checkpoint(
        self,
        out_dir: str,
        filename_tmpl: str,
        save_optimizer: bool = True,
        meta: Mapping[str, Any] | None = None,
        create_symlink: bool = True,
    ) -> str:
        """Write everything that resuming needs to a file in ``out_dir``; returns its path."""

    @contextmanager
    def running(self, data_loaders: list[Any], workflow: Workflow) -> Iterator[Plan]:
        """The span of a run over ``data_loaders``: ``after_run`` is always called, with the outcome set."""
        self.check_parts()
        self.plan.prepare(data_loaders, workflow)
        self.open_readers(data_loaders)
        with self.lifecycle.running(workflow):
            yield self.plan

    def _set_old_limit(self, name: str, limit: int | None) -> None:
        """Take a limit that is an argument of ``run``, as in old MMCV, and warn."""
        if limit is not None:
            kind = 'EpochBasedRunner' if self.by_epoch else 'IterBasedRunner'
            warnings.warn(
                f'{name} in run is deprecated, please give it to the runner: {kind}(…, {name}=…)',
                DeprecationWarning,
                stacklevel=3,
            )
            setattr(self, f'_{name}', limit)

    def check_parts(self) -> None:
        """Check that no part of the engine was replaced.

        Raises:
            WrongType: a subclass, or an assignment, has replaced one.
        """
        for name, part in self._parts.items():
            if not isinstance(getattr(self, name), part) or hasattr(type(self), name):
                raise WrongType(
                    f'{type(self).__name__}.{name} is a part of the engine, but is {getattr(self, name)!r}: give your '
                    'attribute or method another name'
                )

    def open_readers(self, data_loaders: list[Any]) -> None:
        """Make a reader for each workflow entry."""
        self.readers.open(data_loaders)

    def start_readers(self) -> None:
        """Begin the first passes of endless loaders, or enter the open ones of a resumed run."""
        self.readers.start(self.evaluator.apart if self.keeps_random_states else nullcontext)

    def give_back_batch(self) -> None:
        """After an error: the batch that was not trained on comes first when this runner runs again."""
        reader = self.data_loader if isinstance(self.data_loader, Reader) else self.readers.find(self.data_loader)
        waits = self.data_batch is not None and not self.progress.iter_is_done and self.mode != 'val'
        if reader is not None and waits:
            reader.give_back(self.data_batch)
            self.data_batch = None

    def run_iter(self, data_batch: Any, train_mode: bool, **kwargs: Any) -> None:
        """Pass one batch to the model and store what it returns as ``outputs``. Subclasses may override it."""
        if self.batch_device is not None:
            data_batch = to_device(data_batch, self.batch_device)
        if self.batch_processor is not None:
            outputs = self.batch_processor(self.model, data_batch, train_mode=train_mode, **kwargs)
        elif train_mode and self.mode == 'train':
            outputs = self.model.train_step(data_batch, self.optimizer, **kwargs)
        elif train_mode:
            step = getattr(self.model, f'{self.mode}_step', None) or self.model.train_step
            outputs = step(data_batch, self.optimizer, **kwargs)
        elif self.by_epoch:
            outputs = self.model.val_step(data_batch, self.optimizer, **kwargs)
        else:
            outputs = self.model.val_step(data_batch, **kwargs)
        if not isinstance(outputs, dict):
            check_outputs(outputs, self._model_name)
        if 'log_vars' in outputs:
            if 'num_samples' not in outputs:
                self.required('num_samples', outputs)
            samples = outputs['num_samples']
            if type(samples) is not int or samples < 0:
                check_samples(samples, self._model_name)
            self.log_buffer.update(outputs['log_vars'], samples)
        self.outputs = outputs
        if train_mode:
            self.outputs_of = self.progress.iter
            self.progress.is_in_iter = not self.progress.iter_is_done  # a user's loop begins an iteration here
        else:
            self.outputs_of = self.mode
        if self.hooks.calls['after_forward'] and not self.evaluator.is_repeating:
            self.call_hook('after_forward')

    def call_hook(self, fn_name: str) -> None:
        """Call the method ``fn_name`` of every part and hook that has it, in order. Any name may be a point."""
        for call in self.hooks.calls[fn_name]:
            call(self)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Call the parts around a subclass's ``call_hook`` (mmgen's), which calls the hooks only."""
        super().__init_subclass__(**kwargs)
        if cls.call_hook is not BaseRunner.call_hook and not hasattr(cls.call_hook, '_has_parts'):
            cls.call_hook = _with_parts(cls.call_hook)  # type: ignore[assignment, method-assign]

    def required(self, key: str, outputs: dict[str, Any] | None = None) -> Any:
        """``outputs[key]`` of the running iteration.

        Raises:
            KeyError: the model's step did not return it.
        """
        return required_output(key, self.outputs if outputs is None else outputs, self.model)

    def step_record(self) -> StepRecord:
        """What the step of the running iteration returned, with the counters.

        Raises:
            RuntimeError: the running iteration has made no step yet, or no iteration is running.
        """
        of, progress, mode = self.outputs_of, self.progress, self.mode
        # The second case: a subclass's loop that has not called run_iter.
        is_trained = self.evaluator.scores is None and (of == progress.iter or progress.iter_is_done)
        if not is_trained and (of is None or of != mode):
            raise RuntimeError(
                'there is no step to read: runner.step_record() is the step of the running iteration, and can be read '
                'from after_forward to after_train_iter, and in after_val_iter. Elsewhere, runner.outputs is what the '
                'last step returned'
            )
        return record_of(self.outputs, self._model_name, progress.epoch, progress.iter, str(mode))

    # --- what hooks read ----------------------------------------------------------------------------------------------

    model_name = _of('_model_name', 'The class name of the model inside any wrappers.')
    rank = _of('_rank', "This process's number among ``world_size``, from 0.")
    world_size = _of('_world_size', 'How many processes train together.')
    epoch = _of('progress.epoch', 'The running epoch, from 0.')
    iter = _of('progress.iter', 'The running training iteration, from 0, over all epochs.')
    inner_iter = _of(
        'progress.inner_iter',
        'The running iteration within its epoch (in the iteration runner: within its workflow entry), from 0.',
    )
    completed_iters = _of(
        'progress.iters',
        'How many training iterations are done; from ``after_train_iter`` on that includes the running one.',
    )
    completed_epochs = _of(
        'progress.epochs', 'How many training epochs are done; in ``after_train_epoch`` that includes the running one.'
    )
    trained_epoch = _of(
        'progress.trained_epoch', 'The number, from 1, of the epoch with the last completed iteration; 0 before it.'
    )
    max_epochs = _of('plan.max_epochs', 'After how many epochs the run ends; None if unknown (yet).')
    max_iters = _of('plan.max_iters', 'After how many training iterations the run ends; None if unknown (yet).')
    outcome = _of('stopping.outcome', 'How the run ended; None before it has.')
    stop_signal = _of('stopping.signal', 'The signal that asked the last run to stop, even if it came too late.')
    is_ending = _of('stopping.is_ending', 'Whether the run ends at the next boundary.')
    heartbeat = _of('stopping.heartbeat', 'A value that changes with each iteration; see `Stop.heartbeat`.')
    parent = _of('lifecycle.parent', 'The run around this one, or None.')
    unfinished = _of('lifecycle.unfinished', 'The names of nested runs that were cut short and have not started again.')
    update_calls = _of('updater.calls', 'How often `update` was called.')
    losses_by_optimizer = _of('updater.losses_by_optimizer', 'How many losses each of several optimizers was given.')
    last_finite = _of(
        'finiteness.last', 'On rank 0: the newest checkpoint, of this run or the resumed one, with finite values.'
    )
    _epoch = _of_mmcv('progress.epoch', 'epoch_is_done')
    _iter = _of_mmcv('progress.iter', 'iter_is_done')
    _inner_iter = _of_mmcv('progress.inner_iter')
    _max_epochs = _of_mmcv('plan.max_epochs')
    _max_iters = _of_mmcv('plan.max_iters')

    @property
    def _hooks(self) -> HookTable:
        return self.hooks

    @_hooks.setter
    def _hooks(self, hooks: Iterable[Hook]) -> None:
        self.hooks = self.hooks.with_hooks(hooks)

    @property
    def loaders(self) -> list[Any]:
        """The loaders of the workflow's entries, in their order; empty before the first run."""
        return [reader.dataloader for reader in self.readers.entries]

    def current_lr(self) -> list[float] | dict[str, list[float]]:
        """The learning rate of every parameter group; by optimizer name where there are several."""
        return learning_rates(self.optimizer)

    def current_momentum(self) -> list[float] | dict[str, list[float]]:
        """The momentum (or first beta) of every parameter group, 0 for groups without one; by name for several
        optimizers."""
        return momenta(self.optimizer)

    # --- methods of the parts, with their signatures -----------------------------------------------------------------

    update = update
    configure_update = handed_on('updater', Updater.configure)
    evaluate = handed_on('evaluator', Evaluator.evaluate)
    around_val = handed_on('evaluator', Evaluator.around_val)
    entered = handed_on('evaluator', Evaluator.entered)
    save = handed_on('snapshots.saver', Saver.save)
    resume = handed_on('snapshots', Snapshots.resume)
    roll_back = handed_on('snapshots', Snapshots.roll_back)
    finish_saving = handed_on('snapshots.saver', Saver.finish)
    last_checkpoint = handed_on('snapshots.saver', Saver.last)
    non_finite = handed_on('finiteness', Finiteness.look)
    restore_hooks = handed_on('snapshots', Snapshots.restore_hooks)
    stop = handed_on('stopping', Stop.stop)
    custom_loop = handed_on('lifecycle', Lifecycle.custom_loop)

    def nested(self, name: str) -> AbstractContextManager[None]:
        """The span of a nested run, for hooks. ::

            with runner.nested('probe'):
                child = EpochBasedRunner(model, optimizer=optimizer, max_epochs=5)
                child.run([loader], [('train', 1)])

        The span seeds the random generators by the name and the moment, and at its end restores them, the gradients and
        the training modes of this run's model. A nested run that does not change this run's weights and buffers does
        not change the training. A hook that opens such spans sets ``nests_runs``.

        If this run is asked to end, by a signal or by `stop`, the nested run ends after its running iteration, the rest
        of the span is skipped, and its name is one of `unfinished`, also in a checkpoint. At the start of the resumed
        run, the hooks' ``after_resume`` opens the span again: the nested run starts from its beginning.
        `NestedRunHook` does all of this.

        Args:
            name: unique among the nested runs.

        Raises:
            RuntimeError: this runner does not run.
        """
        from runnerkit.runner.nesting import nested

        return nested(self, name)

    def load_checkpoint(
        self,
        filename: str,
        map_location: Any = 'cpu',
        strict: bool = False,
        revise_keys: list[tuple[str, str]] = [(r'^module.', '')],  # noqa: B006 (never changed)
    ) -> Any:
        """Load only a checkpoint's weights; see `runnerkit.checkpoint.load_checkpoint`."""
        from runnerkit.checkpoint import load_checkpoint

        return load_checkpoint(self.model, filename, map_location, strict, self.logger, revise_keys=revise_keys)


def _with_parts(call_hook: Callable[[BaseRunner, str], None]) -> Callable[[BaseRunner, str], None]:
    """A subclass's ``call_hook`` with the calls of the parts before and after it."""

    @wraps(call_hook)
    def called(self: BaseRunner, fn_name: str) -> None:
        hooks = self.hooks
        if hooks.point == fn_name:  # a subclass of it overrides call_hook again and calls this one
            call_hook(self, fn_name)
            return
        first, last = ([*calls.get(fn_name, ())] for calls in (hooks.first, hooks.last))
        before, hooks.point = hooks.point, fn_name
        try:
            if fn_name == 'after_run':  # every call is made, even if others raise
                call_each([*first, lambda runner: call_hook(runner, fn_name), *last], self)
                return
            for call in first:
                call(self)
            call_hook(self, fn_name)
            for call in (*last, *hooks.last.get(fn_name, ())[len(last) :]):  # a save may have moved here
                call(self)
        finally:
            hooks.point = before

    called._has_parts = True  # type: ignore[attr-defined]
    return called
