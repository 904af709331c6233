"""What both runners share: their state, what hooks see of it, the step, and counting. The loops are in their own files,
and so are the parts that a runner is built of."""

from __future__ import annotations

import logging
import operator
import os
import time
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any

from torch import nn
from torch.optim import Optimizer

from runnerkit.data.kinds import WAY_OUT, length_of, named, set_epoch
from runnerkit.data.reader import Reader
from runnerkit.distributed import get_dist_info
from runnerkit.hooks.hook import Hook, Outcome, Score
from runnerkit.log_buffer import LogBuffer
from runnerkit.optim.update import Update
from runnerkit.parallel import unwrap
from runnerkit.parallel.steps import required_output
from runnerkit.runner.checkpoints import EXACTNESS
from runnerkit.runner.checks import absolute_work_dir, check_optimizer, check_settings, check_step
from runnerkit.runner.evaluating import Evaluating
from runnerkit.runner.hook_table import HookTable
from runnerkit.runner.progress import Progress
from runnerkit.runner.readers import Readers
from runnerkit.runner.registration import Registration
from runnerkit.runner.saver import Saver
from runnerkit.runner.updates import Updates
from runnerkit.runner.workflow import Workflow, trains
from runnerkit.utils.logging import get_logger
from runnerkit.utils.paths import mkdir_or_exist


def _read_only(attribute: str, doc: str) -> Any:
    """A property that C code reads: hooks ask for these several times in every iteration."""
    return property(operator.attrgetter(attribute), doc=doc)


class BaseRunner(Registration, Updates, Evaluating, metaclass=ABCMeta):
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
        #: The latest value of each score by name, the same on every rank.
        self.scores: dict[str, Score] = {}
        self._updates: dict[Any, Update] = {}
        self._update_options: dict[str, Any] = {}
        self._options_of: dict[Any, dict[str, Any]] = {}
        self._workflow: list[tuple[str, int]] = []
        self._readers = Readers()
        self._resumed: dict[str, Any] | None = None

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
            reader = self._readers.find(self.data_loader, progress.entry)
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
        return required_output(key, self.outputs if outputs is None else outputs, self.model)

    def _units(self, workflow: Workflow) -> Iterator[tuple[int, str]]:
        """One unit after another, from where the run is: the index of its workflow entry, and its mode."""
        progress, self._round_began = self._progress, None
        training = [trains(mode, self) for mode, _ in workflow]
        while self._stop_reason is None:
            if progress.entry >= len(workflow):
                # A workflow that has not moved on would never end: one without any training runs once.
                if self._is_finished() or self._round_began == (self._epoch, self._iter):
                    return
                progress.entry = progress.units = 0
            if (progress.entry, progress.units) == (0, 0):
                self._round_began = (self._epoch, self._iter)
            mode, n = workflow[progress.entry]
            if progress.units >= n or (training[progress.entry] and self._is_finished()):
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
        if fn_name in ('before_run', 'after_run'):
            (self._enter_hooks if fn_name == 'before_run' else self._leave_hooks)()
            return
        if fn_name == 'before_train_iter' and self._saver.in_flight is not None:
            self._saver.poll()
        for call in self._hook_table.calls[fn_name]:
            call(self)
        if self._signals is not None and fn_name == 'after_train_iter':
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
                if isinstance(self.data_loader, Reader):
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
