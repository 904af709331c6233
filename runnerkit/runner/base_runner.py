"""What both runners share: their state, their hooks, the update, evaluation, checkpoints. The loops are in their own
files."""

from __future__ import annotations

import logging
import operator
import os
import signal
import time
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial, wraps
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from runnerkit.data.kinds import WAY_OUT, length_of, named, set_epoch
from runnerkit.data.reader import Reader
from runnerkit.distributed import broadcast_buffers, broadcast_object, get_dist_info, reduce_named_sums
from runnerkit.evaluation import Scores, evaluation_mode, numbers_of, score_dataset
from runnerkit.fileio.paths import is_url, local_path, shown
from runnerkit.hooks.checkpoint import CheckpointHook
from runnerkit.hooks.hook import Hook, Outcome, Score
from runnerkit.log_buffer import LogBuffer
from runnerkit.optim.update import Update
from runnerkit.parallel import unwrap
from runnerkit.runner.checkpoints import EXACTNESS
from runnerkit.runner.checks import check_optimizer, check_step
from runnerkit.runner.hook_table import HookTable
from runnerkit.runner.progress import Progress
from runnerkit.runner.readers import Readers
from runnerkit.runner.registration import Registration
from runnerkit.runner.rollback import Rollback
from runnerkit.runner.saver import Saver
from runnerkit.runner.signals import StopSignals
from runnerkit.runner.updates import Updates
from runnerkit.runner.workflow import trains
from runnerkit.utils.logging import DETAIL, get_logger
from runnerkit.utils.paths import mkdir_or_exist
from runnerkit.utils.report import scope as report_scope

Workflow = Sequence[tuple[str, int]]
_NO_RINGS: AbstractContextManager[Any] = nullcontext()


def _read_only(attribute: str, doc: str) -> Any:
    """A property that C code reads: hooks ask for these several times in every iteration."""
    return property(operator.attrgetter(attribute), doc=doc)


class BaseRunner(Registration, Updates, Rollback, metaclass=ABCMeta):
    """A training run: a model, its optimizer, hooks, and counters of how far it is.

    Args:
        model: a module with ``train_step`` (and ``val_step`` where there is validation), or any if
            ``batch_processor`` is given.
        batch_processor: MMCV's old form of the step, ``batch_processor(model, data, train_mode=…) -> dict``.
        optimizer: one, or several by name.
        work_dir: where logs and checkpoints go; created. None: nowhere.
        logger: by default runnerkit's own.
        meta: what every checkpoint should remember of this run; not changed.
        max_iters: how many iterations to train; give it or ``max_epochs``.
        max_epochs: how many epochs to train.
    """

    #: Whether a run's unit is the epoch; hooks fill their own ``by_epoch`` from it.
    by_epoch = True
    #: Whether a subclass of the iteration runner has written its own ``train``.
    _has_own_train = False

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
        check_step(model, batch_processor)
        check_optimizer(optimizer)
        if logger is not None and not isinstance(logger, logging.Logger):
            raise TypeError(f'logger must be a logging.Logger object, but got {type(logger)}')
        if meta is not None and not isinstance(meta, Mapping):
            raise TypeError(f'meta must be a dict or None, but got {type(meta)}')
        if work_dir is not None and not isinstance(work_dir, (str, os.PathLike)):
            raise TypeError(f'"work_dir" must be a str, a path or None, but got {type(work_dir)}')
        for name, limit in (('max_epochs', max_epochs), ('max_iters', max_iters)):
            if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
                raise TypeError(f'{name} must be a whole number of at least 0, but got {limit!r}')
        if max_epochs is not None and max_iters is not None:
            raise ValueError(
                f'Only one of `max_epochs` or `max_iters` can be set, but got {max_epochs} and {max_iters}'
            )
        self.model: Any = model  # a module whose steps are found by name
        self.batch_processor = batch_processor
        self.optimizer = optimizer
        self.logger = get_logger('runnerkit') if logger is None else logger
        self.meta: dict[str, Any] = dict(meta or {})
        self.work_dir = None if work_dir is None else _absolute(work_dir)
        if self.work_dir is not None:
            mkdir_or_exist(self.work_dir)
        self._model_name = type(unwrap(model)).__name__
        self._rank, self._world_size = get_dist_info()
        self.timestamp = time.strftime('%Y%m%d_%H%M%S', time.localtime())
        self.mode: str | None = None
        self.data_loader: Any = None
        self.data_batch: Any = None
        self.outputs: dict[str, Any] = {}
        self.log_buffer = self._train_log = LogBuffer()
        self._hook_table = HookTable()
        self._saver = Saver(self)
        self._epoch = self._iter = self._inner_iter = 0
        self._max_epochs, self._max_iters = max_epochs, max_iters
        self._stops_by_iters = max_iters is not None
        self._progress = Progress()
        self._epoch_start = 0  # the iteration with which the running epoch began
        self._round_began: tuple[int, int] | None = None  # epoch and iteration; None: somewhere inside, by going back
        self._unit = 0  # the number of the running unit within its workflow entry
        self._is_inside = False  # a resumed run has not entered the epoch yet that was open
        self._stop_reason: str | None = None
        self._outcome: Outcome | None = None
        #: The latest value of each score by name, the same on every rank.
        self.scores: dict[str, Score] = {}
        self._signals: StopSignals | None = None
        #: The signal that asked the last run to stop, also if that came too late to change its outcome.
        self.stop_signal: signal.Signals | None = None
        self._found: dict[str, Any] | None = None  # the scores of the running evaluation
        self._entered_hooks: list[Hook] = []
        self._guests: list[Hook] | None = None  # hooks of evaluations that leave with the run; None: there is no run
        self._updates: dict[Any, Update] = {}
        self._update_options: dict[str, Any] = {}
        self._options_of: dict[Any, dict[str, Any]] = {}
        self._workflow: list[tuple[str, int]] = []
        self._readers = Readers()
        self._resumed: dict[str, Any] | None = None
        self._is_restored = True

    # --- what hooks read ---------------------------------------------------------------------------------------------

    @property
    def model_name(self) -> str:
        """The class name of the model inside any wrappers."""
        return self._model_name

    rank = _read_only('_rank', "This process's number among ``world_size``, from 0.")
    world_size = _read_only('_world_size', 'How many processes train together.')

    @property
    def hooks(self) -> list[Hook]:
        """The registered hooks, lowest priority number first."""
        return self._hook_table

    @property
    def _hooks(self) -> list[Hook]:
        return self._hook_table

    @_hooks.setter
    def _hooks(self, hooks: Iterable[Hook]) -> None:
        self._hook_table = HookTable(hooks)

    epoch = _read_only('_epoch', 'The running epoch, from 0.')
    iter = _read_only('_iter', 'The running training iteration, from 0, over all epochs.')
    inner_iter = _read_only(
        '_inner_iter',
        'The running iteration within its epoch (in the iteration runner: within its workflow entry), from 0.',
    )

    @property
    def progress(self) -> Progress:
        """What is done. Runners with loops of their own may have written ``_epoch`` and ``_iter``, which count here."""
        progress = self._progress
        if progress.iters != self._iter + 1:
            progress.iters = self._iter
        if progress.epochs != self._epoch + 1:
            progress.epochs = self._epoch
        reader = None
        if progress.epoch_is_open and progress.batches:
            reader = self._readers.known(self.data_loader, progress.entry)
        if reader is not None and reader.is_open:
            progress.samples = reader.samples(progress.batches - reader.left_out)
        elif not progress.epoch_is_open:
            progress.samples = 0
        return progress

    @property
    def completed_iters(self) -> int:
        """How many training iterations are done; from ``after_train_iter`` on that includes the running one."""
        return self.progress.iters

    @property
    def completed_epochs(self) -> int:
        """How many training epochs are done; in ``after_train_epoch`` that includes the running one."""
        return self.progress.epochs

    max_epochs = _read_only('_max_epochs', 'After how many epochs the run ends; None where that is not known (yet).')
    max_iters = _read_only(
        '_max_iters', 'After how many training iterations the run ends; None where that is not known (yet).'
    )

    @property
    def outcome(self) -> Outcome | None:
        """How the run ended; None before it has."""
        return self._outcome

    def current_lr(self) -> list[float] | dict[str, list[float]]:
        """The learning rate of every parameter group; by optimizer name where there are several."""
        return self._of_groups(lambda group: group['lr'])

    def current_momentum(self) -> list[float] | dict[str, list[float]]:
        """The momentum (or first beta) of every parameter group, 0 where there is none; by name for several
        optimizers."""
        return self._of_groups(lambda group: group.get('momentum', group.get('betas', (0,))[0]))

    def _of_groups(self, read: Callable[[dict[str, Any]], float]) -> Any:
        if isinstance(self.optimizer, Optimizer):
            return [read(group) for group in self.optimizer.param_groups]
        if isinstance(self.optimizer, dict):
            return {name: [read(group) for group in each.param_groups] for name, each in self.optimizer.items()}
        raise RuntimeError('lr and momentum are not available: the runner has no optimizer')

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

    def stop(self, reason: str) -> None:
        """End the run after the running iteration; ``reason`` becomes part of `outcome` and of the log.

        In a distributed run any rank may call it, and all ranks stop after the same iteration: after the running one
        if all of them call it there, else as soon as all of them can.
        """
        if self._signals is None or self._world_size == 1:
            self._stop_reason = reason
        else:
            self._signals.request(reason)

    def run_iter(self, data_batch: Any, train_mode: bool, **kwargs: Any) -> None:
        """Hand one batch to the model and keep what it returns as ``outputs``. The slot that subclasses replace."""
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
            raise TypeError(
                f"{self._model_name}'s step must return a dict(loss=…, log_vars=…, num_samples=…), but it "
                f'returned {outputs!r}'
            )
        if 'log_vars' in outputs:
            if 'num_samples' not in outputs:
                self.required('num_samples', outputs)
            self.log_buffer.update(outputs['log_vars'], outputs['num_samples'])
        self.outputs = outputs
        if self._hook_table.calls['after_forward']:
            self.call_hook('after_forward')

    def _train_iter(self, kwargs: dict[str, Any], enters: bool = True) -> None:
        """Train on the batch at hand: what both runners repeat."""
        if enters and self._hook_table.calls['around_iter']:
            with self._rings('around_iter'):
                self._train_iter(kwargs, enters=False)
            return
        self.call_hook('before_train_iter')
        self.run_iter(self.data_batch, train_mode=True, **kwargs)
        self.call_hook('after_train_iter')

    def required(self, key: str, outputs: dict[str, Any] | None = None) -> Any:
        """``outputs[key]`` of the running iteration.

        Raises:
            KeyError: the model's step did not return it.
        """
        outputs = self.outputs if outputs is None else outputs
        if key not in outputs:
            raise KeyError(
                f"{self._model_name}'s step returned no {key!r} (it returned {sorted(outputs)}): "
                f'return dict(loss=…, log_vars=dict(…), num_samples=…)'
            )
        return outputs[key]

    def _units(self, workflow: Workflow) -> Iterator[tuple[int, str]]:
        """One unit after another, from where the run is: the index of its workflow entry, and its mode."""
        progress, self._round_began = self._progress, None
        training = [trains(mode, self) for mode, _ in workflow]
        while self._stop_reason is None:
            goes_on = False
            if progress.entry >= len(workflow):
                # A workflow that has not moved on would never end: one without any training runs once.
                if self._is_finished() or self._round_began == (self._epoch, self._iter):
                    return
                progress.entry = progress.units = 0
                goes_on = True
            if (progress.entry, progress.units) == (0, 0):
                self._round_began = (self._epoch, self._iter)
            mode, n = workflow[progress.entry]
            if progress.units >= n or (training[progress.entry] and not goes_on and self._is_finished()):
                progress.entry, progress.units = progress.entry + 1, 0
                continue
            # The validation iterations of an entry are one evaluation, which is not cut.
            if self._signals is not None and (self.by_epoch or progress.units == 0 or training[progress.entry]):
                self._signals.boundaries += 1
                if self._signals.pending:
                    self._stop_if_signalled(self._signals)
                if self._stop_reason is not None:
                    return
            self._unit = progress.units
            yield progress.entry, mode

    def _is_finished(self) -> bool:
        if self._stops_by_iters:
            return self._iter >= (self._max_iters or 0)
        return self._max_epochs is not None and self._epoch >= self._max_epochs

    @contextmanager
    def _running(self, workflow: Workflow) -> Iterator[None]:
        """Enter and leave the run: rings, ``before_run``; whatever happens, ``after_run`` with the outcome set."""
        self._outcome, self._stop_reason, self.stop_signal = None, None, None
        former, self._workflow = self._workflow, [(mode, n) for mode, n in workflow]
        if former and self._workflow != former:
            self._progress.entry = self._progress.units = 0
        with ExitStack() as stack:
            signals = stack.enter_context(StopSignals(self._rank, self._world_size))
            stack.enter_context(report_scope(self.log_buffer))
            self._signals = signals
            error: BaseException | None = None
            try:
                stack.enter_context(self._rings('around_run'))
                self.call_hook('before_run')
                yield
            except BaseException as caught:
                error = caught
                kind: Any = 'interrupted' if isinstance(caught, KeyboardInterrupt) else 'failed'
                self._outcome = Outcome(kind, error=caught)
                self._give_back_batch()
                raise
            finally:
                self._signals = None
                if error is None:
                    self._outcome = Outcome('completed' if self._stop_reason is None else 'stopped', self._stop_reason)
                self.logger.log(logging.INFO if error is None else logging.ERROR, 'Run %s', self._outcome)
                try:
                    self.call_hook('after_run')
                except Exception:
                    if error is None:
                        raise
                    self.logger.exception('after_run of a hook failed')
                self._resumed = None
                self.stop_signal = self.stop_signal or signals.received
        if self.stop_signal == signal.SIGINT and not signals.is_nested:
            raise KeyboardInterrupt

    def _stop_if_signalled(self, signals: StopSignals) -> None:
        """At a boundary: stop here because of a signal, or because some rank has called `stop`."""
        due = signals.due()
        if due is None or self._stop_reason is not None:
            return
        self._stop_reason, self.stop_signal = due
        if due.signal is None:
            return
        self.logger.warning('%s: the run stops after iteration %d', due.reason, self.completed_iters)
        if not any(isinstance(hook, CheckpointHook) and hook.save_last for hook in self._hook_table):
            self.logger.warning(
                'nothing is saved: no CheckpointHook with save_last=True is registered, which would save the end of '
                'the run'
            )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let runners count that have a ``call_hook`` of their own (mmgen's has)."""
        super().__init_subclass__(**kwargs)
        if 'call_hook' in vars(cls):
            cls.call_hook = _counting(vars(cls)['call_hook'])  # type: ignore[assignment, method-assign]

    def call_hook(self, fn_name: str) -> None:
        """Call the method ``fn_name`` of every hook that does something there, in order. Any name may be a point.

        The runner counts what is done by the points that pass here, so that runners with loops of their own (MMCV's
        shape) count, save and resume as well.
        """
        if fn_name in _COUNTED:
            self._count(fn_name)
        elif fn_name == 'before_train_iter' and self._saver.in_flight is not None:
            self._saver.poll()
        if fn_name in _OF_THE_RUN:
            _OF_THE_RUN[fn_name](self)
            return
        for call in self._hook_table.calls[fn_name]:
            call(self)
        if fn_name == 'after_train_iter' and self._signals is not None:
            self._signals.boundaries += 1
            if self._signals.pending:
                self._stop_if_signalled(self._signals)

    def _count(self, point: str) -> None:
        """Note what ``point`` means for what is done; it may be said more than once."""
        progress = self._progress
        if point == 'after_train_iter':
            progress.iters = self._iter + 1
            if self.by_epoch:
                if self._is_inside:  # a loop of a subclass's own
                    self._begin_inside()
                progress.batches = progress.iters - self._epoch_start
            else:
                progress.units, progress.epochs = self._inner_iter + 1, self._epoch
                if self._has_own_train and isinstance(self.data_loader, Reader):
                    self.data_loader.trained = self.data_loader.given
        elif point == 'before_run':
            self._is_restored = False
        elif point == 'before_train_epoch':
            self._begin_epoch()
        elif point == 'after_train_epoch':
            if self._epoch_is_whole():
                progress.epochs, progress.units = self._epoch + 1, self._unit + 1
                progress.epoch_is_open, progress.batches = False, 0
                self._reader_of(self.data_loader).close()
        elif point == 'after_val_epoch':
            progress.units = self._unit + 1
        elif not self.by_epoch:  # after_val_iter
            progress.units = self._inner_iter + 1

    def _begin_epoch(self) -> None:
        """An epoch begins, or goes on after what is done of it."""
        progress, reader = self._progress, self._reader_of(self.data_loader)
        if not progress.epoch_is_open:
            progress.epoch_is_open, progress.batches, progress.iters = True, 0, self._iter
        elif progress.batches and not (reader.is_open or reader.is_to_enter):
            self._is_inside = True
            self._enter_by_count(reader)
        self._epoch_start = self._iter - progress.batches
        set_epoch(self.data_loader, self._epoch)
        if self._is_inside:
            reader.prime()

    def _begin_inside(self) -> None:
        """A loop of a subclass's own has begun in the epoch that was open, past the reader."""
        self._is_inside = False
        reader = self._reader_of(self.data_loader)
        if not reader.is_primed:
            self._epoch_start = self._iter
            self.logger.warning(
                '%s: the open epoch begins anew, since %s.train has a loop of its own; %s, also there',
                named(reader.dataloader),
                type(self).__name__,
                WAY_OUT,
                extra=EXACTNESS,
            )
        reader.close()

    def _epoch_is_whole(self) -> bool:
        """Whether the open epoch has ended, rather than been cut short by the run's ``max_iters``."""
        if not self._stops_by_iters or self._progress.iters < (self._max_iters or 0):
            return True
        return self._progress.batches == length_of(self.data_loader)

    def _enter_hooks(self) -> None:
        """Call ``before_run`` of every hook, also of those that are registered meanwhile; restore what was resumed."""
        self._entered_hooks, self._guests = [], []
        while True:
            waiting = [hook for hook in self._hook_table if not any(hook is done for done in self._entered_hooks)]
            if not waiting:
                break
            self._entered_hooks.append(waiting[0])
            waiting[0].before_run(self)
        self._begin_run()

    def _begin_run(self) -> None:
        """After ``before_run``: say what is going to happen, and be where a resumed run was."""
        if self._is_restored:
            return
        self._is_restored = True
        self._hook_table.calls.clear()  # a hook may have chosen in before_run which points it serves
        limit = f'{self._max_iters} iterations' if self._stops_by_iters else f'{self._max_epochs} epochs'
        work_dir = self.work_dir and shown(self.work_dir)
        self.logger.info('Start running: workflow %s, at most %s, work dir %s', self._workflow, limit, work_dir)
        self.logger.info('Hooks, in the order in which they are called:\n%s', self._hook_table.info(), extra=DETAIL)
        is_own_run = not self.by_epoch and not self._readers.entries  # a subclass's own
        if is_own_run:
            self._readers.adopt_new_iter_loaders()
            if self._resumed is not None and len(self._readers.entries) > 1:
                self.logger.warning(
                    '%s.run has a loop of its own: the workflow begins with its first entry, wherever it was',
                    type(self).__name__,
                    extra=EXACTNESS,
                )
        self._readers.know_evaluations(self._workflow, self._hook_table)
        self._follow_orders()
        if self._resumed is None:
            self._tell_doubts()
        self._restore()
        if is_own_run:
            self._start_readers()

    def _leave_hooks(self) -> None:
        """Call ``after_run`` of every hook that was entered, also if one of them fails; the first failure is raised."""
        failures = self._end_saving()
        entered = {id(hook) for hook in self._entered_hooks}
        failures += self._leave([hook for hook in self._hook_table.dispatch_order() if id(hook) in entered])
        guests, self._guests = self._guests or [], None
        failures += self._leave(guests)
        failures += self._end_saving()  # a hook may have saved in after_run
        if failures:
            raise failures[0]

    def _end_saving(self) -> list[Exception]:
        try:
            self._saver.close()
        except Exception as failure:
            self.logger.exception('the checkpoint that was being written in the background failed')
            return [failure]
        return []

    def _leave(self, hooks: Iterable[Hook]) -> list[Exception]:
        """Call ``after_run`` of each of ``hooks``, also where another one's fails; returns what failed."""
        failures: list[Exception] = []
        for hook in hooks:
            try:
                hook.after_run(self)
            except Exception as failure:
                self.logger.exception('after_run of %s failed', type(hook).__name__)
                failures.append(failure)
        return failures

    def _rings(self, span: str) -> AbstractContextManager[Any]:
        """The hooks' context managers for ``span``, nested; the lowest priority number is the outermost."""
        rings = self._hook_table.calls[span]
        return _nested(rings, self) if rings else _NO_RINGS

    # --- evaluation --------------------------------------------------------------------------------------------------

    @contextmanager
    def around_val(self) -> Iterator[dict[str, Any]]:
        """The span of an evaluation; one inside another is part of it.

        The hooks' ``around_val`` rings are entered, the model is in evaluation mode, and afterwards the runner is as it
        was before. All ranks enter and leave it together.

        Yields:
            The evaluation's scores by name, to be filled in. What code in the span writes to ``log_buffer.output``
            counts as well, as MMCV's evaluation hooks do. On leaving, rank 0's numbers among them become part of
            `scores` on every rank, and the hooks' ``after_evaluate`` is called, unless there are none.
        """
        if self._found is not None:
            yield self._found
            return
        names = ('mode', 'data_loader', 'data_batch', 'outputs', '_inner_iter')
        kept = {name: getattr(self, name, None) for name in names}  # MMCV's loops delete the batch
        found: dict[str, Any] = {}
        self._found, log, before = found, self.log_buffer, dict(self.log_buffer.output)
        log.output.clear()
        broadcast_buffers(self.model.buffers())  # all ranks evaluate what rank 0 would save
        try:
            with self._rings('around_val'), evaluation_mode(self.model):
                yield found
        finally:
            self._found = None
            written = dict(log.output)
            log.output.clear()
            log.output.update({**before, **written})
            for name, value in kept.items():
                setattr(self, name, value)
        scores = broadcast_object(numbers_of({**written, **found}))
        if scores:
            self.scores.update({name: Score(value, self.completed_iters) for name, value in scores.items()})
            self._hook_table.dispatch('after_evaluate', self, scores)

    def evaluate(
        self, loader: Any, hooks: Iterable[Hook] = (), test_fn: Callable[..., Any] | None = None, scope: str = 'val'
    ) -> dict[str, Any]:
        """Evaluate the model, or its averaged weights where there is an EMA, on ``loader``; on all ranks.

        Args:
            loader: a loader; if its data set has a method ``evaluate``, that is asked with the model's predictions
                (``model(return_loss=False, **data)``), else ``model.val_step`` gives losses and what the model's
                metrics need.
            hooks: hooks whose ``val`` points and ``after_evaluate`` are called. Those that are not the runner's own are
                entered and left as in a run. ``before_run`` is called at the first evaluation that is given the hook,
                and ``after_run`` at the end of the runner's run, whatever happens: a logger writes one file. Outside
                of a run, ``after_run`` is called at the end of this evaluation.
            test_fn: ``test_fn(model, loader) -> predictions`` instead of the loop.
            scope: the name of the log scope, which is `mode` meanwhile.

        Returns:
            Scores by name. What a data set's ``evaluate`` gives, rank 0 has as it is, and the others have the numbers
            among it.
        """
        table = hooks if isinstance(hooks, HookTable) else HookTable(hooks)
        guests = HookTable(hook for hook in table if not any(hook is own for own in self._hook_table))
        with self._visited_by(guests), self.around_val() as found:
            if test_fn is not None or hasattr(getattr(loader, 'dataset', None), 'evaluate'):
                scores = score_dataset(self.model, loader, test_fn, logger=self.logger)
            else:
                scores = self._validate(loader, table, scope)
            found.update(scores)
            numbers = broadcast_object(numbers_of(scores))
            guests.dispatch('after_evaluate', self, numbers)
        return scores or dict(numbers)

    @contextmanager
    def _visited_by(self, guests: Iterable[Hook]) -> Iterator[None]:
        """Call ``before_run`` of those ``guests`` that are new; they leave with the run, or where there is none,
        here."""
        entered = [] if self._guests is None else self._guests
        try:
            for hook in guests:
                if not any(hook is known for known in entered):
                    entered.append(hook)
                    hook.before_run(self)
            yield
        finally:
            failures = self._leave(entered) if self._guests is None else []
        if failures:
            raise failures[0]

    def _validate(self, loader: Any, hooks: HookTable, mode: str, epoch: int = 0) -> dict[str, Any]:
        """One pass of ``val_step`` over ``loader`` in a log scope of its own; ``hooks`` hear the val points."""
        train_log, self.log_buffer = self.log_buffer, LogBuffer()
        self.mode, self.data_loader = mode, loader
        call = self.call_hook if hooks is self._hook_table else partial(hooks.dispatch, runner=self)
        number = len(self._readers.evaluations)
        scores, reader = Scores(self.model), self._readers.of_evaluation(loader)
        if len(self._readers.evaluations) > number:
            self._tell_late_evaluation(number, loader)
        try:
            with report_scope(self.log_buffer), torch.no_grad(), self._rings('around_epoch'):
                call('before_val_epoch')
                # A pass that an error has cut short does not go on here.
                batches = reader.batches(epoch) if reader.is_to_enter else reader.begin(epoch)
                for self._inner_iter, self.data_batch in enumerate(batches):
                    with self._rings('around_iter'):
                        call('before_val_iter')
                        self.run_iter(self.data_batch, train_mode=False)
                        scores.update(self.outputs)
                        call('after_val_iter')
                    self.data_batch = None
                reader.close()
                self.log_buffer.update(scores.compute())
                self.log_buffer.average(reduce=self._log_reduce())
                results = dict(self.log_buffer.output)
                call('after_val_epoch')
        finally:
            self.log_buffer = train_log
        return results

    # --- readers -----------------------------------------------------------------------------------------------------

    def _start_readers(self) -> None:
        """Begin the loaders' first passes, or enter those that were open."""
        is_resumed = any(reader.is_to_enter for reader in self._readers.entries)
        for reader in self._readers.entries:
            reader.start()
        if is_resumed:
            self._restore_moment()

    def _give_back_batch(self) -> None:
        """After an error: the batch that was not trained on comes first if this runner runs again."""
        loader = self.data_loader
        reader = loader if isinstance(loader, Reader) else self._readers.known(loader, self._progress.entry)
        waits = self.data_batch is not None and self._progress.iters == self._iter and self.mode != 'val'
        if reader is not None and waits:
            reader.give_back(self.data_batch)
            self.data_batch = None

    def _reader_of(self, loader: Any) -> Reader:
        """The reader of a training loader. One that a loop of a subclass's own brings goes where it was when it was
        saved."""
        number = len(self._readers.entries)
        reader = self._readers.of(loader, self._progress.entry)
        if len(self._readers.entries) > number:
            self._load_admitted(reader, number)
        return reader

    def _log_reduce(self) -> Callable[..., Any] | None:
        return reduce_named_sums if self._world_size > 1 else None


@contextmanager
def _nested(rings: Iterable[Callable[[Any], AbstractContextManager[Any]]], runner: BaseRunner) -> Iterator[None]:
    with ExitStack() as stack:
        for ring in rings:
            stack.enter_context(ring(runner))
        yield


def _absolute(work_dir: str | os.PathLike[str]) -> str:
    path = local_path(work_dir)
    if is_url(path):
        raise ValueError(
            f"a runner's work_dir is a folder on this machine, but got {path!r}: give one for the logs, and the URL to "
            f'the hooks that write there, checkpoint_config=dict(out_dir={path!r}, ...); the train tool does that'
        )
    return os.path.abspath(path)


#: The points at which the hooks do not simply follow one another.
_OF_THE_RUN: dict[str, Callable[[BaseRunner], None]] = {
    'before_run': BaseRunner._enter_hooks,
    'after_run': BaseRunner._leave_hooks,
}

#: The points that mean something for what is done.
_COUNTED = frozenset(
    ['before_run', 'before_train_epoch', 'after_train_iter', 'after_train_epoch', 'after_val_iter', 'after_val_epoch']
)


def _counting(call_hook: Callable[[BaseRunner, str], None]) -> Callable[[BaseRunner, str], None]:
    """A subclass's own ``call_hook``, in which the runner counts as it does in its own."""

    @wraps(call_hook)
    def counted(self: BaseRunner, fn_name: str) -> None:
        if fn_name in _COUNTED:
            self._count(fn_name)
        call_hook(self, fn_name)
        if fn_name == 'before_run':
            self._begin_run()

    return counted
