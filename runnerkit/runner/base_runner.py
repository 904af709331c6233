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
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from runnerkit.data.position import epoch_batches, set_epoch
from runnerkit.distributed import broadcast_buffers, get_dist_info, reduce_sums
from runnerkit.evaluation import Scores, evaluation_mode, score_dataset
from runnerkit.fileio.paths import is_url, local_path
from runnerkit.hooks.checkpoint import CheckpointHook
from runnerkit.hooks.hook import Hook
from runnerkit.optim.update import Update
from runnerkit.parallel import unwrap
from runnerkit.runner.checks import check_optimizer, check_step
from runnerkit.runner.hook_table import HookTable
from runnerkit.runner.log_buffer import LogBuffer
from runnerkit.runner.registration import Registration
from runnerkit.runner.rollback import Rollback
from runnerkit.runner.saver import Saver
from runnerkit.runner.signals import StopSignals
from runnerkit.runner.updates import Updates
from runnerkit.runner.workflow import trains
from runnerkit.utils.logging import get_logger
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
        self._done_iter = self._done_epoch = -1  # the last iteration and epoch that are done
        self._epoch_start = self._epoch_rest = 0  # the iteration with which the running epoch began; see _begin_epoch
        self._epoch_is_open = self._epoch_is_cut = self._unit_done = False
        self._stop_reason: str | None = None
        self._outcome: str | None = None
        self._signals: StopSignals | None = None
        #: The signal that asked the last run to stop, also if that came too late to change its outcome.
        self.stop_signal: signal.Signals | None = None
        self._in_val = False
        self._entered_hooks: list[Hook] = []
        self._updates: dict[Any, Update] = {}
        self._update_options: dict[str, Any] = {}
        self._workflow: list[tuple[str, int]] = []
        self._cursor = (0, 0)
        self._resumed: dict[str, Any] | None = None
        self._entering: Any = None

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
    def completed_iters(self) -> int:
        """How many training iterations are done; from ``after_train_iter`` on that includes the running one."""
        return self._iter + (self._done_iter == self._iter)

    @property
    def completed_epochs(self) -> int:
        """How many training epochs are done; in ``after_train_epoch`` that includes the running one."""
        return self._epoch + (self._done_epoch == self._epoch)

    max_epochs = _read_only('_max_epochs', 'After how many epochs the run ends; None where that is not known (yet).')
    max_iters = _read_only(
        '_max_iters', 'After how many training iterations the run ends; None where that is not known (yet).'
    )

    @property
    def outcome(self) -> str | None:
        """How the run ended: ``'completed'``, ``'stopped: <reason>'``, ``'interrupted'`` or ``'failed: <error>'``;
        else None."""
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
        """End the run after the running iteration; ``reason`` becomes part of `outcome` and of the log."""
        self._stop_reason = reason

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
        self._unit_done = not self.by_epoch
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
        """One unit after another, from where a resumed run stopped: the index of its workflow entry, and its mode."""
        index, done = self._cursor
        is_finished = self._is_finished()
        while self._stop_reason is None:
            before, is_whole = (self._epoch, self._iter), (index, done) == (0, 0)
            for i in range(index, len(workflow)):
                mode, n = workflow[i]
                for k in range(done, n):
                    if is_finished and trains(mode, self):
                        break
                    # The validation iterations of an entry are one evaluation, which is not cut.
                    signals = self._signals
                    if signals and signals.pending and (self.by_epoch or k == 0 or trains(mode, self)):
                        self._heed(signals)
                        if self._stop_reason is not None:
                            return
                    self._cursor, self._unit_done = (i, k), False
                    yield i, mode
                    is_finished = self._is_finished()
                    if self._has_gone_back:
                        self._has_gone_back = False
                        yield from self._units(workflow)
                        return
                    if self._unit_done or not (self._epoch_is_cut or self._stop_reason):
                        self._cursor, self._unit_done = (i, k + 1), False
                    if self._stop_reason is not None:
                        return
                done = 0
            index = 0
            # A workflow that has not moved on would never end: one without any training runs once.
            if is_finished or (is_whole and (self._epoch, self._iter) == before):
                return

    def _is_finished(self) -> bool:
        if self._stops_by_iters:
            return self._iter >= (self._max_iters or 0)
        return self._max_epochs is not None and self._epoch >= self._max_epochs

    @contextmanager
    def _running(self, workflow: Workflow) -> Iterator[None]:
        """Enter and leave the run: rings, ``before_run``; whatever happens, ``after_run`` with the outcome set."""
        self._outcome, self._stop_reason, self._cursor, self.stop_signal = None, None, (0, 0), None
        self._workflow = [(mode, n) for mode, n in workflow]
        with ExitStack() as stack:
            signals = stack.enter_context(StopSignals(lambda: self._iter, self._rank, self._world_size))
            stack.enter_context(report_scope(self.log_buffer))
            self._signals = signals
            error: BaseException | None = None
            try:
                stack.enter_context(self._rings('around_run'))
                self.call_hook('before_run')
                yield
            except BaseException as caught:
                error = caught
                self._outcome = 'interrupted' if isinstance(caught, KeyboardInterrupt) else f'failed: {caught!r}'
                raise
            finally:
                self._signals = None
                if error is None:
                    self._outcome = 'completed' if self._stop_reason is None else f'stopped: {self._stop_reason}'
                self.logger.log(logging.INFO if error is None else logging.ERROR, 'Run %s', self._outcome)
                try:
                    self.call_hook('after_run')
                except Exception:
                    if error is None:
                        raise
                    self.logger.exception('after_run of a hook failed')
                self._resumed = self._entering = None
                self.stop_signal = self.stop_signal or signals.received
        if self.stop_signal == signal.SIGINT and not signals.is_nested:
            raise KeyboardInterrupt

    def _heed(self, signals: StopSignals) -> None:
        """At a boundary: stop here if a signal says so."""
        number = signals.due(self.completed_iters)
        if number is None or self._stop_reason is not None:
            return
        self.stop_signal = number
        self.stop(number.name)
        self.logger.warning('%s: the run stops after iteration %d', number.name, self.completed_iters)
        if not any(isinstance(hook, CheckpointHook) and hook.save_last for hook in self._hook_table):
            self.logger.warning(
                'nothing is saved: no CheckpointHook with save_last=True is registered, which would save the end of '
                'the run'
            )

    def call_hook(self, fn_name: str) -> None:
        """Call the method ``fn_name`` of every hook that does something there, in order. Any name may be a point.

        The runner keeps its own books by the points that pass here, so that runners with loops of their own (MMCV's
        shape) count, save and resume as well.
        """
        if fn_name == 'after_train_iter':
            self._done_iter = self._iter
        elif fn_name in _BOOKKEEPING:
            _BOOKKEEPING[fn_name](self)
            if fn_name in ('before_run', 'after_run'):
                return
        if fn_name == 'before_train_iter' and self._saver.in_flight is not None:
            self._saver.poll()
        for call in self._hook_table.calls[fn_name]:
            call(self)
        if self._signals is not None and self._signals.pending and fn_name == 'after_train_iter':
            self._heed(self._signals)

    def _before_run(self) -> None:
        """Call ``before_run`` of every hook, also of those that are registered meanwhile; restore what was resumed."""
        self._entered_hooks = []
        while True:
            waiting = [hook for hook in self._hook_table if not any(hook is done for done in self._entered_hooks)]
            if not waiting:
                break
            self._entered_hooks.append(waiting[0])
            waiting[0].before_run(self)
        self._hook_table.calls.clear()  # a hook may have chosen in before_run which points it serves
        limit = f'{self._max_iters} iterations' if self._stops_by_iters else f'{self._max_epochs} epochs'
        self.logger.info('Start running: workflow %s, at most %s, work dir %s', self._workflow, limit, self.work_dir)
        self.logger.info('Hooks, in the order in which they are called:\n%s', self._hook_table.info())
        self._restore_hooks()

    def _after_run(self) -> None:
        """Call ``after_run`` of every hook that was entered, also if one of them fails; the first failure is raised."""
        failures = []
        try:
            self._saver.close()
        except Exception as failure:
            self.logger.exception('the checkpoint that was being written in the background failed')
            failures.append(failure)
        for hook in self._hook_table.dispatch_order():
            if any(hook is entered for entered in self._entered_hooks):
                try:
                    hook.after_run(self)
                except Exception as failure:
                    self.logger.exception('after_run of %s failed', type(hook).__name__)
                    failures.append(failure)
        if failures:
            raise failures[0]

    def _begin_epoch(self) -> None:
        # One that an earlier run of this runner left open is gone on with, after what is done of it.
        self._epoch_rest = self._position()
        self._epoch_start, self._epoch_is_open, self._epoch_is_cut = self._iter, True, False
        set_epoch(self.data_loader, self._epoch)

    def _end_epoch(self) -> None:
        if not self._epoch_is_cut:
            self._done_epoch, self._unit_done, self._epoch_is_open = self._epoch, True, False
        self._entering = None

    def _rings(self, span: str) -> AbstractContextManager[Any]:
        """The hooks' context managers for ``span``, nested; the lowest priority number is the outermost."""
        rings = self._hook_table.calls[span]
        return _nested(rings, self) if rings else _NO_RINGS

    # --- evaluation --------------------------------------------------------------------------------------------------

    @contextmanager
    def around_val(self) -> Iterator[None]:
        """The span of an evaluation: the hooks' ``around_val`` rings (entered once, however deep), evaluation mode,
        own log."""
        if self._in_val:
            yield
            return
        names = ('mode', 'data_loader', 'data_batch', 'outputs', '_inner_iter')
        kept = {name: getattr(self, name, None) for name in names}  # MMCV's loops delete the batch
        self._in_val = True
        broadcast_buffers(self.model.buffers())  # all ranks evaluate what rank 0 would save
        try:
            with self._rings('around_val'), evaluation_mode(self.model):
                yield
        finally:
            self._in_val = False
            for name, value in kept.items():
                setattr(self, name, value)

    def evaluate(
        self, loader: Any, hooks: Iterable[Hook] = (), test_fn: Callable[..., Any] | None = None, scope: str = 'val'
    ) -> dict[str, Any]:
        """Evaluate the model, or its averaged weights where there is an EMA, on ``loader``; on all ranks.

        Args:
            loader: a loader; if its data set has a method ``evaluate``, that is asked with the model's predictions
                (``model(return_loss=False, **data)``), else ``model.val_step`` gives losses and what the model's
                metrics need.
            hooks: whose ``val`` points are called meanwhile.
            test_fn: ``test_fn(model, loader) -> predictions`` instead of the loop.
            scope: the name of the log scope, which is `mode` meanwhile.

        Returns:
            Scores by name.
        """
        with self.around_val():
            if test_fn is not None or hasattr(getattr(loader, 'dataset', None), 'evaluate'):
                return score_dataset(self.model, loader, test_fn, logger=self.logger)
            table = hooks if isinstance(hooks, HookTable) else HookTable(hooks)
            return self._validate(loader, table, scope)

    def _validate(self, loader: Any, hooks: HookTable, mode: str, epoch: int = 0) -> dict[str, Any]:
        """One pass of ``val_step`` over ``loader`` in a log scope of its own; ``hooks`` hear the val points."""
        train_log, self.log_buffer = self.log_buffer, LogBuffer(copies=self._train_log.copies)
        self.mode, self.data_loader = mode, loader
        call = self.call_hook if hooks is self._hook_table else partial(_call, hooks, self)
        scores = Scores(self.model)
        try:
            with report_scope(self.log_buffer), torch.no_grad(), self._rings('around_epoch'):
                call('before_val_epoch')
                for self._inner_iter, self.data_batch in enumerate(self._batches(loader, epoch)):
                    with self._rings('around_iter'):
                        call('before_val_iter')
                        self.run_iter(self.data_batch, train_mode=False)
                        scores.update(self.outputs)
                        call('after_val_iter')
                    self.data_batch = None
                self.log_buffer.update(scores.compute())
                self.log_buffer.average(reduce=self._log_reduce())
                results = dict(self.log_buffer.output)
                call('after_val_epoch')
        finally:
            self.log_buffer = train_log
        return results

    def _batches(self, loader: Any, epoch: int, start: int = 0, state: Any = None) -> Iterator[Any]:
        return epoch_batches(loader, epoch, start, state)

    def _log_reduce(self) -> Callable[..., Any] | None:
        return reduce_sums if self._world_size > 1 else None


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


def _call(hooks: HookTable, runner: BaseRunner, point: str) -> None:
    for call in hooks.calls[point]:
        call(runner)


#: What the runner notes when a point passes; before_run and after_run have a dispatch of their own.
_BOOKKEEPING: dict[str, Callable[[BaseRunner], None]] = {
    'before_run': BaseRunner._before_run,
    'after_run': BaseRunner._after_run,
    'before_train_epoch': BaseRunner._begin_epoch,
    'after_train_epoch': BaseRunner._end_epoch,
}
