"""What a runner knows: the attributes that all of its parts share, and what hooks read of them."""

from __future__ import annotations

import logging
import operator
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer

from runnerkit.distributed import get_dist_info
from runnerkit.hooks.hook import Hook, Outcome, Score
from runnerkit.log_buffer import LogBuffer
from runnerkit.optim.update import Update
from runnerkit.parallel import unwrap
from runnerkit.runner.checks import absolute_work_dir, check_optimizer, check_settings, check_step
from runnerkit.runner.finiteness import Finiteness
from runnerkit.runner.hook_table import HookTable
from runnerkit.runner.progress import Progress
from runnerkit.runner.readers import Readers
from runnerkit.runner.saver import Saver
from runnerkit.runner.settings import Settings
from runnerkit.runner.signals import StopSignals
from runnerkit.runner.weight_watch import WeightWatch
from runnerkit.utils.logging import get_logger
from runnerkit.utils.paths import mkdir_or_exist

if TYPE_CHECKING:
    from runnerkit.runner.conditions import Change


def _read_only(attribute: str, doc: str) -> Any:
    """A read-only property without a Python call: hooks read these several times in each iteration."""
    return property(operator.attrgetter(attribute), doc=doc)


class RunnerState:
    """The attributes of a runner; each of its parts is a class that adds methods. See `BaseRunner`."""

    #: Whether a run's unit is the epoch; hooks fill their own ``by_epoch`` from it.
    by_epoch = True
    #: Whether evaluations leave the random states of the training as they were. True in a run by config. Those that
    #: MMCV has (`EvalHook` and the workflow's ``'val'`` entries) move them, as there, if the loader or the model draws.
    keeps_random_states = False
    #: Whether a subclass of the iteration runner has written its own ``train``.
    _has_own_train = False
    call_hook: Callable[[str], None]

    #: Whether a resume takes this run's settings where the checkpoint has others, as in every run by config. If not,
    #: the checkpoint's optimizer settings stay in effect, as in MMCV, and a warning lists them.
    config_wins = False
    #: The split that evaluations are on. A run by config sets it, and logs in runnerkit's own words; None: in MMCV's.
    evaluates_on: str | None = None
    #: With ``auto_scale_lr``: the samples of each rank's batch, and ``base_batch_size``. The learning rates were
    #: multiplied by the former and by the number of ranks, and divided by the latter.
    lr_scaled_for: tuple[int, int] | None = None

    # Of the current run, or of the last one.
    #: The signal that asked the last run to stop, also if that came too late to change its outcome.
    stop_signal: signal.Signals | None = None
    _outcome: Outcome | None = None
    _stop_reason: str | None = None
    _signals: StopSignals | None = None
    _is_saving = False
    _waits = 0  # how often it has waited for a stream

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
        self._stepped: int | str | None = None  # the iteration, or the evaluation's mode, that `outputs` belongs to
        self.log_buffer = self._train_log = LogBuffer()
        self._hook_table = HookTable()
        self._saver = Saver(self)  # type: ignore[arg-type]
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
        #: What the user should not miss of the running or last run, by subject: its last lines say it once more.
        self.notices: dict[str, str] = {}
        self._weight_watch = WeightWatch()
        self._finiteness = Finiteness()
        self._updates: dict[Any, Update] = {}
        #: How many losses each of several optimizers was given, by its name.
        self.losses_by_optimizer: Counter[str] = Counter()
        self._update_options: dict[str, Any] = {}  # the default for updates that are not configured
        self._options_of: dict[Any, dict[str, Any]] = {}  # what each update was configured with
        self._workflow: list[tuple[str, int]] = []
        self._readers = Readers()
        self._resumed: dict[str, Any] | None = None
        self._resumed_config: Any = None  # the config's text in the checkpoint
        # What optimizers and hooks were configured with, each with the object that it is of.
        self._group_settings: dict[str, tuple[Optimizer, list[Settings]]] = {}
        self._hook_settings: dict[int, tuple[Hook, Settings]] = {}
        self._optimizer_changes: list[Change] = []  # found by `resume`, for the table of changes

    #: Where batches are moved before a step gets them; None: the model's wrapper does it, or the batches are there.
    batch_device: torch.device | None = None

    #: Whether ranks that begin with different weights take those of rank 0. A run by config does so; otherwise, as in
    #: MMCV, they stay different, with a warning.
    repairs_weights = False

    #: Whether there is a step; subclasses that are given their model later ask when they run.
    _check_step = staticmethod(check_step)

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

    @property
    def loaders(self) -> list[Any]:
        """The loaders of the workflow's entries, in their order; empty before the first run."""
        return [reader.dataloader for reader in self._readers.entries]

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

    @property
    def is_ending(self) -> bool:
        """Whether the run has been asked to end, by `stop` or a signal: it does at the next boundary."""
        return self._stop_reason is not None or (self._signals is not None and self._signals.pending)
