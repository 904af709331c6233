"""What both runners share of the loop: the step, the points, and counting. The loops themselves and the parts that a
runner is built of are in files of their own."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any

from runnerkit.data.kinds import WAY_OUT, length_of, named, set_epoch
from runnerkit.data.reader import Reader
from runnerkit.hooks.step_record import StepRecord, record_of
from runnerkit.parallel import to_device
from runnerkit.parallel.steps import check_samples, required_output
from runnerkit.runner.checkpoints import EXACTNESS
from runnerkit.runner.evaluating import Evaluating
from runnerkit.runner.nesting import CutShort
from runnerkit.runner.registration import Registration
from runnerkit.runner.workflow import Workflow, trains


class BaseRunner(Registration, Evaluating, metaclass=ABCMeta):
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

    def run_iter(self, data_batch: Any, train_mode: bool, **kwargs: Any) -> None:
        """Hand one batch to the model and keep what it returns as ``outputs``. The slot that subclasses replace."""
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
            raise TypeError(
                f"{self._model_name}'s step must return a dict(loss=…, log_vars=…, num_samples=…), but it "
                f'returned {outputs!r}'
            )
        if 'log_vars' in outputs:
            if 'num_samples' not in outputs:
                self.required('num_samples', outputs)
            samples = outputs['num_samples']
            if type(samples) is not int or samples < 0:
                check_samples(samples, self._model_name)
            self.log_buffer.update(outputs['log_vars'], samples)
        self.outputs = outputs
        self._stepped = self._iter if train_mode else self.mode
        if self._hook_table.calls['after_forward'] and not self._is_repeating:
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
        return required_output(key, self.outputs if outputs is None else outputs, self.model)

    def step_record(self) -> StepRecord:
        """What the step of the running iteration has returned, with the counters, made now.

        Raises:
            RuntimeError: the running iteration has made no step yet, or none is running.
        """
        # The second one: a subclass's own loop, which has not called run_iter.
        is_trained = self._found is None and self._iter in (self._stepped, self._progress.iters - 1)
        if not is_trained and (self._stepped is None or self._stepped != self.mode):
            raise RuntimeError(
                'there is no step to read: runner.step_record() is the step of the running iteration, and can be read '
                'from after_forward to after_train_iter, and in after_val_iter. Elsewhere, runner.outputs is what the '
                'last step returned'
            )
        return record_of(self.outputs, self._model_name, self._epoch, self._iter, str(self.mode))

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
        try:
            for call in self._hook_table.calls[fn_name]:
                call(self)
        except CutShort:
            pass  # the run ends; the rest of the point is made up for when it is resumed
        if fn_name == 'after_train_iter' and self._signals is not None:
            if self.parent is not None:  # which meanwhile waits for this run
                self.parent._while_waiting()
            self._signals.boundaries += 1
            if self._signals.pending:
                self._stop_if_signalled(self._signals)

    def _count(self, point: str) -> None:
        """Note what ``point`` means for what is done; it may be said more than once."""
        progress = self._progress
        if point == 'after_train_iter':
            progress.iters = self._iter + 1
            if progress.iters == self._weight_watch.due:
                self._weight_watch.look(self, self._iter)
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
            self._note_settings(self._hook_table)
        elif point == 'before_train_epoch':
            # After the hooks of the epoch before, since these may update the weights, too.
            self._weight_watch.look(self, progress.iters)
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
                '%s: the open epoch starts over, because %s.train has its own loop; %s, also there',
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
        with suppress(CutShort):
            call_hook(self, fn_name)
        if fn_name == 'before_run':
            self._has_own_dispatch = not self._is_restored
            self._begin_run()

    return counted
